// libjpeg-turbo on photos in memory, whose errors come back as text: it neither exits nor prints.
#pragma once

#include <csetjmp>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <new>

#include <jpeglib.h>

#include <jerror.h>

#include "jpeg.h"

// 2.0.0 no longer hangs when lines of a progressive 4:2:0 photo are skipped; 2.0.3 changed how 4:4:0 is upsampled.
#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2000003
#error "libjpeg-turbo 2.0.3 or newer is needed: install a newer libjpeg-dev (Debian 11 and Ubuntu 20.04 have one)"
#endif

namespace strobe {

constexpr long kMostMemory = 512L << 20;  // of libjpeg, which keeps all coefficients of a progressive photo
constexpr int kMostScans = 100;           // usual are 10; each costs time for all pixels, and takes but a few bytes

// What libjpeg works on. Made anew for each photo: one that is used again remembers the tables of the photo before,
// and would decode with them a photo that has lost its own.
struct Session {
  jpeg_decompress_struct jpeg;
  jpeg_error_mgr errors;
  jpeg_source_mgr source;
  jpeg_progress_mgr progress;
  std::jmp_buf escape;
};

inline thread_local char refusal[JMSG_LENGTH_MAX];  // why the thread's last photo was refused

inline const char* refuse(const char* why) {
  if (why != refusal) std::snprintf(refusal, sizeof refusal, "%s", why);
  return refusal;
}

[[noreturn]] inline void fail(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, refusal);
  std::longjmp(static_cast<Session*>(jpeg->client_data)->escape, 1);
}

[[noreturn]] inline void fail(j_decompress_ptr jpeg, const char* why) {
  refuse(why);
  std::longjmp(static_cast<Session*>(jpeg->client_data)->escape, 1);
}

inline void print_nothing(j_common_ptr) {}

inline void count_warnings(j_common_ptr jpeg, int level) {
  if (level < 0) jpeg->err->num_warnings++;
}

// Called for each row of units of each scan.
inline void limit_scans(j_common_ptr common) {
  const auto jpeg = reinterpret_cast<j_decompress_ptr>(common);
  if (jpeg->input_scan_number > kMostScans) fail(jpeg, "It has too many scans");
}

inline void do_nothing(j_decompress_ptr) {}

inline boolean end_of_data(j_decompress_ptr jpeg) {
  ERREXIT(jpeg, JERR_INPUT_EOF);
  return FALSE;
}

inline void skip_data(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if (static_cast<unsigned long>(count) > jpeg->src->bytes_in_buffer) ERREXIT(jpeg, JERR_INPUT_EOF);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= count;
}

// Reads the header. What libjpeg gives up on ends in the caller's setjmp.
inline void open_photo(Session& session, Bytes photo) {
  jpeg_decompress_struct& jpeg = session.jpeg;
  jpeg_create_decompress(&jpeg);
  jpeg.mem->max_memory_to_use = kMostMemory;
  session.source = {};
  session.source.next_input_byte = photo.data();
  session.source.bytes_in_buffer = photo.size();
  session.source.init_source = do_nothing;
  session.source.fill_input_buffer = end_of_data;
  session.source.skip_input_data = skip_data;
  session.source.resync_to_restart = jpeg_resync_to_restart;
  session.source.term_source = do_nothing;
  jpeg.src = &session.source;
  session.progress = {};
  session.progress.progress_monitor = limit_scans;
  jpeg.progress = &session.progress;
  jpeg_read_header(&jpeg, TRUE);
  if (jpeg.data_precision != 8) fail(&jpeg, "It has no 8 bits a colour");
  if (jpeg.num_components != 1 && jpeg.num_components != 3) fail(&jpeg, "It is neither grey nor of three colours");
  if (int64_t{jpeg.image_width} * jpeg.image_height > kMostPixels) fail(&jpeg, "It has too many pixels");
}

// Gives `use` a photo whose header has been read; nullptr, or why that failed. libjpeg's errors jump back to here:
// on the way no object may need its destructor.
template <class Use>
const char* with_photo(Bytes photo, Use&& use) {
  Session session;
  std::memset(&session.jpeg, 0, sizeof session.jpeg);
  session.jpeg.err = jpeg_std_error(&session.errors);
  session.jpeg.client_data = &session;
  session.errors.error_exit = fail;
  session.errors.emit_message = count_warnings;
  session.errors.output_message = print_nothing;
  if (setjmp(session.escape)) {
    jpeg_destroy_decompress(&session.jpeg);
    return refusal;
  }
  const char* refused = nullptr;
  try {
    open_photo(session, photo);
    use(session.jpeg);
  } catch (const std::bad_alloc&) {
    refused = refuse("There is not enough memory");
  }
  jpeg_destroy_decompress(&session.jpeg);
  return refused;
}

}  // namespace strobe

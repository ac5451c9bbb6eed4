#include "jpeg.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>
#include <vector>

#include <jpeglib.h>

#include <jerror.h>

#include "resample.h"
#include "units.h"

// 2.0.0 no longer hangs when lines of a progressive 4:2:0 photo are skipped; 2.0.3 changed how 4:4:0 is upsampled.
#if !defined(LIBJPEG_TURBO_VERSION_NUMBER) || LIBJPEG_TURBO_VERSION_NUMBER < 2000003
#error "libjpeg-turbo 2.0.3 or newer is needed: install a newer libjpeg-dev (Debian 11 and Ubuntu 20.04 have one)"
#endif

namespace strobe {
namespace {

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

thread_local char refusal[JMSG_LENGTH_MAX];  // why the thread's last photo was refused

const char* refuse(const char* why) {
  if (why != refusal) std::snprintf(refusal, sizeof refusal, "%s", why);
  return refusal;
}

[[noreturn]] void fail(j_common_ptr jpeg) {
  jpeg->err->format_message(jpeg, refusal);
  std::longjmp(static_cast<Session*>(jpeg->client_data)->escape, 1);
}

[[noreturn]] void fail(j_decompress_ptr jpeg, const char* why) {
  refuse(why);
  std::longjmp(static_cast<Session*>(jpeg->client_data)->escape, 1);
}

void print_nothing(j_common_ptr) {}

void count_warnings(j_common_ptr jpeg, int level) {
  if (level < 0) jpeg->err->num_warnings++;
}

// Called for each row of units of each scan.
void limit_scans(j_common_ptr common) {
  const auto jpeg = reinterpret_cast<j_decompress_ptr>(common);
  if (jpeg->input_scan_number > kMostScans) fail(jpeg, "It has too many scans");
}

void do_nothing(j_decompress_ptr) {}

boolean end_of_data(j_decompress_ptr jpeg) {
  ERREXIT(jpeg, JERR_INPUT_EOF);
  return FALSE;
}

void skip_data(j_decompress_ptr jpeg, long count) {
  if (count <= 0) return;
  if (static_cast<unsigned long>(count) > jpeg->src->bytes_in_buffer) ERREXIT(jpeg, JERR_INPUT_EOF);
  jpeg->src->next_input_byte += count;
  jpeg->src->bytes_in_buffer -= count;
}

// Reads the header. What libjpeg gives up on ends in the caller's setjmp.
void open_photo(Session& session, Bytes photo) {
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

// A Huffman-coded block takes a bit, and such a photo has at most 910 pixels a byte. This bounds the time that a header
// can take; arithmetic-coded photos of hardly more than one colour may have more, and are refused.
constexpr int64_t kMostPixelsPerByte = 1024;
constexpr double kMostKept = 0.4;  // of the units that are passed; to copy more takes longer than libjpeg
constexpr int kPixel = 4;          // bytes of JCS_EXT_RGBX: vectors take it apart faster than three

// Whether the photo is progressive and some of its scans are not there: libjpeg then smooths blocks by their
// neighbours, in each version in another way.
bool lacks_scans(const jpeg_decompress_struct& jpeg) {
  if (!jpeg.progressive_mode) return false;
  for (int component = 0; component < jpeg.num_components; component++)
    for (int coefficient = 0; coefficient < DCTSIZE2; coefficient++)
      if (jpeg.coef_bits[component][coefficient] != 0) return true;
  return false;
}

// Decodes a box, and gives its rows one by one. The box is in pixels of the decoded size, `eighths` of the photo's.
//
// At the edges of what is decoded, colours are not upsampled from neighbours that lie beyond. So one more unit (MCU)
// is decoded on each side, and dropped.
template <class Row>
void decode_box(jpeg_decompress_struct& jpeg, const Box& box, int eighths, std::vector<uint8_t>& memory, Row&& take) {
  jpeg.out_color_space = JCS_EXT_RGBX;
  jpeg.dct_method = JDCT_ISLOW;
  jpeg.do_fancy_upsampling = TRUE;
  jpeg.scale_num = eighths;
  jpeg.scale_denom = 8;
  jpeg_start_decompress(&jpeg);
  if (lacks_scans(jpeg)) fail(&jpeg, "It lacks scans");
  const int64_t unit_height = int64_t{jpeg.max_v_samp_factor} * eighths;
  const int64_t unit_width = int64_t{jpeg.max_h_samp_factor} * eighths;
  const int64_t above = std::max<int64_t>(box.top / unit_height - 1, 0) * unit_height;
  const int64_t first = std::max<int64_t>(box.left / unit_width - 1, 0) * unit_width;
  const int64_t last = (box.left + box.width + unit_width - 1) / unit_width * unit_width + unit_width;
  const int64_t right = std::min<int64_t>(last, jpeg.output_width);
  auto left = static_cast<JDIMENSION>(first), width = static_cast<JDIMENSION>(right - first);
  if (width < jpeg.output_width) jpeg_crop_scanline(&jpeg, &left, &width);
  if (above > 0) jpeg_skip_scanlines(&jpeg, static_cast<JDIMENSION>(above));
  memory.resize(size_t{width} * kPixel);
  JSAMPROW row = memory.data();
  const int64_t end = box.top + box.height;
  while (jpeg.output_scanline < end) {
    const bool wanted = jpeg.output_scanline >= box.top;
    if (jpeg_read_scanlines(&jpeg, &row, 1) != 1) fail(&jpeg, "It ends early");
    if (wanted) take(row + (box.left - left) * kPixel);
  }
  if (jpeg.err->num_warnings > 0) fail(&jpeg, "Its data is damaged");
}

void check_box(jpeg_decompress_struct& jpeg, Bytes photo, const Box& box) {
  const int64_t height = jpeg.image_height, width = jpeg.image_width;
  const bool inside = box.top >= 0 && box.left >= 0 && box.height > 0 && box.width > 0 && box.height <= height &&
                      box.width <= width && box.top <= height - box.height && box.left <= width - box.width;
  if (!inside) fail(&jpeg, "The box does not lie within it");
  if (height * width / kMostPixelsPerByte > static_cast<int64_t>(photo.size()))
    fail(&jpeg, "It has more pixels than its bytes can hold");
}

// Memory that a thread uses again.
struct Memory {
  std::vector<uint8_t> row;
  Resampler resampler;
  UnitCutter cutter;
};

Memory& memory() {
  thread_local Memory memory;
  return memory;
}

// The units that hold a box and the two pixels around it, from which its colours are upsampled.
Units units_around(const jpeg_decompress_struct& jpeg, const Box& box, int eighths) {
  const int64_t tall = int64_t{jpeg.max_v_samp_factor}, wide = int64_t{jpeg.max_h_samp_factor};
  const auto first = [&](int64_t place, int64_t samples) {
    return std::max<int64_t>(place - 2, 0) / (samples * eighths);
  };
  const auto end = [&](int64_t place, int64_t samples, int64_t whole) {
    return std::min((place + 1) / (samples * eighths) + 1, (whole - 1) / (samples * DCTSIZE) + 1);
  };
  return {first(box.top, tall), first(box.left, wide), end(box.top + box.height, tall, jpeg.image_height),
          end(box.left + box.width, wide, jpeg.image_width)};
}

// As decode_box, of the photo whose header has been read; by a smaller photo where that is faster.
template <class Row>
void decode_part(
    jpeg_decompress_struct& jpeg, Bytes photo, const Box& box, int eighths, Memory& memory, Row&& take) {
  const Units units = units_around(jpeg, box, eighths);
  const int64_t tall = int64_t{jpeg.max_v_samp_factor} * eighths, wide = int64_t{jpeg.max_h_samp_factor} * eighths;
  const int64_t columns = (int64_t{jpeg.image_width} - 1) / (int64_t{jpeg.max_h_samp_factor} * DCTSIZE) + 1;
  const int64_t kept = (units.bottom - units.top) * (units.right - units.left);
  const bool worth = kMostKept * static_cast<double>(units.bottom * columns) > static_cast<double>(kept);
  if (!worth || !memory.cutter.cut(jpeg, photo, units)) return decode_box(jpeg, box, eighths, memory.row, take);
  const Box moved{box.top - units.top * tall, box.left - units.left * wide, box.height, box.width};
  const char* refused = with_photo(memory.cutter.result(), [&](jpeg_decompress_struct& smaller) {
    decode_box(smaller, moved, eighths, memory.row, take);
  });
  if (refused) fail(&jpeg, refused);
}

void split_row(const uint8_t* pixels, int64_t width, uint8_t* red, uint8_t* green, uint8_t* blue) {
  for (int64_t x = 0; x < width; x++) {
    red[x] = pixels[kPixel * x];
    green[x] = pixels[kPixel * x + 1];
    blue[x] = pixels[kPixel * x + 2];
  }
}

// The smallest size, in eighths, at which the box is not smaller than the square.
int eighths_for(const Box& box, int64_t side) {
  int eighths = 1;
  while (eighths < 8 && (box.height * eighths < 8 * side || box.width * eighths < 8 * side)) eighths++;
  return eighths;
}

void crop(jpeg_decompress_struct& jpeg, Bytes photo, const Box& box, Memory& memory, uint8_t* out) {
  const int64_t plane = box.height * box.width;
  decode_part(jpeg, photo, box, 8, memory, [&, out](const uint8_t* pixels) mutable {
    split_row(pixels, box.width, out, out + plane, out + 2 * plane);
    out += box.width;
  });
}

void resample(
    jpeg_decompress_struct& jpeg, Bytes photo, const Box& box, int64_t side, int eighths, Memory& memory,
    uint8_t* out) {
  const Box part{box.top * eighths / 8, box.left * eighths / 8,
                 ((box.top + box.height) * eighths + 7) / 8 - box.top * eighths / 8,
                 ((box.left + box.width) * eighths + 7) / 8 - box.left * eighths / 8};
  const auto scaled = [&](int64_t whole) { return static_cast<double>(whole * eighths) / 8; };
  const double top = scaled(box.top) - static_cast<double>(part.top), bottom = top + scaled(box.height);
  const double left = scaled(box.left) - static_cast<double>(part.left), right = left + scaled(box.width);
  memory.resampler.begin(part.height, part.width, top, left, bottom, right, side);
  decode_part(jpeg, photo, part, eighths, memory, [&](const uint8_t* pixels) { memory.resampler.row(pixels); });
  memory.resampler.finish(out);
}

}  // namespace

const char* measure_jpeg(Bytes photo, Size& size) {
  return with_photo(photo, [&](jpeg_decompress_struct& jpeg) { size = {jpeg.image_height, jpeg.image_width}; });
}

const char* square_jpeg(Bytes photo, const Box& box, int64_t side, bool scaled, uint8_t* out) {
  Memory& reused = memory();
  return with_photo(photo, [&](jpeg_decompress_struct& jpeg) {
    check_box(jpeg, photo, box);
    if (side == 0 || (box.height == side && box.width == side))
      crop(jpeg, photo, box, reused, out);
    else
      resample(jpeg, photo, box, side, scaled ? eighths_for(box, side) : 8, reused, out);
  });
}

}  // namespace strobe

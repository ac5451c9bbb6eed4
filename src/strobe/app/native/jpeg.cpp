#include "jpeg.h"

#include <algorithm>
#include <vector>

#include "libjpeg.h"
#include "resample.h"
#include "units.h"

namespace strobe {
namespace {

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

const char* crop_jpeg(Bytes photo, const Box& box, uint8_t* out) {
  Memory& reused = memory();
  return with_photo(photo, [&](jpeg_decompress_struct& jpeg) {
    check_box(jpeg, photo, box);
    crop(jpeg, photo, box, reused, out);
  });
}

const char* square_jpeg(Bytes photo, const Box& box, int64_t side, bool scaled, uint8_t* out) {
  Memory& reused = memory();
  return with_photo(photo, [&](jpeg_decompress_struct& jpeg) {
    check_box(jpeg, photo, box);
    if (box.height == side && box.width == side)
      crop(jpeg, photo, box, reused, out);
    else
      resample(jpeg, photo, box, side, scaled ? eighths_for(box, side) : 8, reused, out);
  });
}

}  // namespace strobe

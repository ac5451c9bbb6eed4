// The one form of TIFF that needs no decoding: little-endian, one page, 16-bit unsigned, uncompressed, the samples of a
// pixel side by side, its strips one after another. The directory is believed in nothing: each value is checked against
// the file's length and the shape that is expected. Several images may lie under one directory, one behind the other,
// as only descriptions tell (ImageJ, tifffile): a file with room for another image behind its strips is of another form.

#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "files.h"

namespace strobe {

struct Shape {
  int64_t bands, height, width;  // each from 1 to kMostSide

  static constexpr int64_t kMostSide = int64_t{1} << 20;
  int64_t pixels() const { return height * width; }
};

// The pixels (height, width, bands) in `file`, which is the whole file; nothing when it is of another form or shape,
// or damaged.
std::optional<Bytes> find_pixels(Bytes file, const Shape& shape);

// Pixels (pixels, samples), little-endian at any alignment, to planes (bands.size(), pixels).
void select_bands(const uint8_t* from, int64_t pixels, int64_t samples, std::span<const int64_t> bands, uint16_t* to);

}  // namespace strobe

// Pillow's resampling (libImaging/Resample.c): the triangle filter, as wide as the shrinking asks for, in fixed point
// with 22 bits after the point; rows first, rounded to bytes, then columns.
#pragma once

#include <cstdint>
#include <vector>

namespace strobe {

// For each place of a line that is made, which places of the given line it is made of, and with what weights.
struct Filter {
  std::vector<int64_t> first, count;  // one for each place
  std::vector<uint32_t> weights;      // `most` for each place
  int64_t most;

  // The part from `begin` to `end`, which may lie between places, of a line of `given` places becomes `made` places.
  void prepare(int64_t given, double begin, double end, int64_t made);
};

// Makes a square of rows of pixels that come one after the other.
class Resampler {
 public:
  // `height` rows of `width` pixels will come, of which the part from (top, left) to (bottom, right) is wanted.
  void begin(int64_t height, int64_t width, double top, double left, double bottom, double right, int64_t side);

  // The next row: red, green, blue and a byte that does not matter, for each pixel.
  void row(const uint8_t* pixels);

  // After the last row: out is (3, side, side).
  void finish(uint8_t* out);

 private:
  void shrink_rows(int64_t rows);

  Filter across_, down_;
  int64_t width_, side_, rows_;
  std::vector<uint64_t> pair_;      // (3, width): two rows, one in each half of a number
  std::vector<uint8_t> shortened_;  // (rows, 3, side)
};

}  // namespace strobe

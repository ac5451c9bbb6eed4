#include "resample.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace strobe {
namespace {

constexpr int kBits = 22;
constexpr uint32_t kHalf = 1u << (kBits - 1);
constexpr int64_t kBlock = 64;

// Places of one row made of several. A weight has 23 bits: the upper 8 of all weights add up to no more than 128, so
// that these sums fit into 16 bits, and the lower 15 need one multiplication of 16 bits. All of it becomes vectors.
void shrink_column(const uint8_t* rows, int64_t stride, const uint32_t* weights, int64_t count, int64_t places,
                   uint8_t* out) {
  std::array<uint32_t, kBlock> low;
  std::array<uint16_t, kBlock> high;
  low.fill(kHalf);
  high.fill(0);
  for (int64_t tap = 0; tap < count; tap++) {
    const uint8_t* row = rows + tap * stride;
    const uint16_t lower = weights[tap] & 0x7fff, upper = static_cast<uint16_t>(weights[tap] >> 15);
    for (int64_t x = 0; x < places; x++) {
      const uint16_t value = row[x];
      low[x] += static_cast<uint32_t>(value) * lower;
      high[x] = static_cast<uint16_t>(high[x] + value * upper);
    }
  }
  for (int64_t x = 0; x < places; x++) out[x] = static_cast<uint8_t>((low[x] + (uint32_t{high[x]} << 15)) >> kBits);
}

}  // namespace

void Filter::prepare(int64_t given, double begin, double end, int64_t made) {
  const double scale = (end - begin) / static_cast<double>(made), support = std::max(scale, 1.0);
  most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  first.resize(made);
  count.resize(made);
  weights.assign(made * most, 0);
  std::vector<double> exact(most);
  for (int64_t place = 0; place < made; place++) {
    const double centre = begin + (static_cast<double>(place) + 0.5) * scale;
    const auto from = std::max<int64_t>(static_cast<int64_t>(centre - support + 0.5), 0);
    int64_t taps = std::min(static_cast<int64_t>(centre + support + 0.5), given) - from;
    double sum = 0;
    for (int64_t tap = 0; tap < taps; tap++) {
      const double away = std::abs((static_cast<double>(tap + from) - centre + 0.5) * (1.0 / support));
      exact[tap] = away < 1 ? 1 - away : 0;
      sum += exact[tap];
    }
    uint32_t* fixed = &weights[place * most];
    for (int64_t tap = 0; tap < taps; tap++) {
      if (sum != 0) exact[tap] /= sum;
      fixed[tap] = static_cast<uint32_t>(0.5 + exact[tap] * (1 << kBits));
    }
    while (taps > 1 && fixed[taps - 1] == 0) taps--;
    first[place] = from;
    count[place] = taps;
  }
}

void Resampler::begin(int64_t height, int64_t width, double top, double left, double bottom, double right,
                      int64_t side) {
  across_.prepare(width, left, right, side);
  down_.prepare(height, top, bottom, side);
  width_ = width;
  side_ = side;
  rows_ = 0;
  pair_.resize(3 * width);
  shortened_.resize((height + 1) * 3 * side);  // rows are made in pairs
}

void Resampler::row(const uint8_t* pixels) {
  const int shift = rows_ % 2 ? 32 : 0;
  uint64_t *red = pair_.data(), *green = red + width_, *blue = green + width_;
  if (shift == 0) {
    for (int64_t x = 0; x < width_; x++) {
      red[x] = pixels[4 * x];
      green[x] = pixels[4 * x + 1];
      blue[x] = pixels[4 * x + 2];
    }
  } else {
    for (int64_t x = 0; x < width_; x++) {
      red[x] |= uint64_t{pixels[4 * x]} << 32;
      green[x] |= uint64_t{pixels[4 * x + 1]} << 32;
      blue[x] |= uint64_t{pixels[4 * x + 2]} << 32;
    }
    shrink_rows(rows_ - 1);
  }
  rows_++;
}

// A sum of bytes times weights has no more than 31 bits: one multiplication serves both rows.
void Resampler::shrink_rows(int64_t rows) {
  constexpr uint64_t halves = uint64_t{kHalf} << 32 | kHalf;
  const uint64_t *red = pair_.data(), *green = red + width_, *blue = green + width_;
  uint8_t *upper = &shortened_[rows * 3 * side_], *lower = upper + 3 * side_;
  for (int64_t place = 0; place < side_; place++) {
    const uint32_t* weights = &across_.weights[place * across_.most];
    const int64_t from = across_.first[place], count = across_.count[place];
    uint64_t r = halves, g = halves, b = halves;
    for (int64_t tap = 0; tap < count; tap++) {
      const uint64_t weight = weights[tap];
      r += red[from + tap] * weight;
      g += green[from + tap] * weight;
      b += blue[from + tap] * weight;
    }
    const std::array<uint64_t, 3> sums{r, g, b};
    for (int64_t colour = 0; colour < 3; colour++) {
      upper[colour * side_ + place] = static_cast<uint8_t>(static_cast<uint32_t>(sums[colour]) >> kBits);
      lower[colour * side_ + place] = static_cast<uint8_t>(sums[colour] >> (32 + kBits));
    }
  }
}

void Resampler::finish(uint8_t* out) {
  if (rows_ % 2) shrink_rows(rows_ - 1);
  const int64_t stride = 3 * side_;
  for (int64_t row = 0; row < side_; row++) {
    const uint8_t* rows = &shortened_[down_.first[row] * stride];
    const uint32_t* weights = &down_.weights[row * down_.most];
    for (int64_t colour = 0; colour < 3; colour++) {
      uint8_t* line = out + (colour * side_ + row) * side_;
      int64_t x = 0;
      for (; x + kBlock <= side_; x += kBlock)  // a known number, so that it stays in registers
        shrink_column(rows + colour * side_ + x, stride, weights, down_.count[row], kBlock, line + x);
      if (x < side_)
        shrink_column(rows + colour * side_ + x, stride, weights, down_.count[row], side_ - x, line + x);
    }
  }
}

}  // namespace strobe

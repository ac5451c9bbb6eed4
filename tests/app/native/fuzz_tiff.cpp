// Damaged TIFFs, read under sanitizers: fuzz_tiff INPUTS SEED FILE BANDS HEIGHT WIDTH
// What is accepted must equal the plainest way to read it.

#include <cstring>

#include "fuzz.h"
#include "tiff.h"

namespace {

using fuzz::below, fuzz::Content;

// The directory's place, or a field of one of its entries.
void change(Content& file) {
  const auto size = uint32_t(file.size());
  const uint32_t telling[] = {0, 1, 2, 3, 4, 7, 8, 12, 16, 255, 0x7fff, 0xffff, 0x10000, 0x7fffffff, 0x80000000,
                              0xfffffffe, 0xffffffff, size, size - 1, size + 1, size - 2, size - 4, size - 8, size / 2,
                              uint32_t(below(size + 1))};
  const size_t entry = 10 + 12 * below(16), places[] = {4, 8, entry + 2 * below(4), entry + 8};
  const uint32_t value = telling[below(std::size(telling))];
  const size_t offset = places[below(std::size(places))], width = 2 << below(2);
  if (offset + width <= file.size()) std::memcpy(file.data() + offset, &value, width);
}

bool read(std::span<const uint8_t> file, strobe::Shape shape) {
  if (below(8) == 0) {
    int64_t* const sides[] = {&shape.bands, &shape.height, &shape.width};
    *sides[below(3)] = 1 + int64_t(below(below(2) ? 40 : strobe::Shape::kMostSide));
  }
  const auto found = strobe::find_pixels(file, shape);
  if (!found) return false;

  const int64_t pixels = shape.pixels();
  const bool inside = found->data() >= file.data() && found->data() + found->size() <= file.data() + file.size();
  if (!inside || static_cast<int64_t>(found->size()) != 2 * pixels * shape.bands) std::abort();
  std::vector<int64_t> bands(1 + below(6));
  for (int64_t& band : bands) band = below(shape.bands);
  const std::unique_ptr<uint16_t[]> planes(new uint16_t[bands.size() * pixels]);
  strobe::select_bands(found->data(), pixels, shape.bands, bands, planes.get());
  for (size_t i = 0; i < bands.size(); ++i) {
    for (int64_t pixel = 0; pixel < pixels; ++pixel) {
      const uint8_t* sample = found->data() + 2 * (pixel * shape.bands + bands[i]);
      if (planes[i * pixels + pixel] != (sample[0] | sample[1] << 8)) std::abort();
    }
  }
  return true;
}

}  // namespace

int main(int, char** words) {
  const auto number = [&](int word) { return std::strtoll(words[word], nullptr, 10); };
  const strobe::Shape shape{number(4), number(5), number(6)};
  const auto reads = [&](std::span<const uint8_t> file) { return read(file, shape); };
  return fuzz::run(words[1], words[2], {words + 3, 1}, change, reads);
}

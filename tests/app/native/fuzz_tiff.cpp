// Changes a TIFF at random and reads it: fuzz_tiff COUNT SEED BANDS HEIGHT WIDTH FILE
//
// Meant to be built with sanitizers, which end it at the first access that is not allowed. What is accepted is compared
// with the plainest way to read it. Prints how many inputs were accepted, and how many were not.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <vector>

#include "tiff.h"

namespace {

using Bytes = std::vector<uint8_t>;

class Mutator {
 public:
  Mutator(Bytes seed, uint64_t number) : seed_(std::move(seed)), random_(number) {}

  int64_t below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  Bytes next() {
    Bytes file = seed_;
    for (int64_t changes = below(4); changes >= 0 && !file.empty(); --changes) change(file);
    return file;
  }

 private:
  void change(Bytes& file) {
    const int64_t size = static_cast<int64_t>(file.size());
    switch (below(8)) {
      case 0: file.resize(below(size + 1)); break;
      case 1: file.resize(std::max<int64_t>(size - below(8), 0)); break;  // a few bytes too short
      case 2: file.insert(file.end(), below(64), 0xff); break;
      case 3:
        for (int64_t bits = below(16); bits >= 0; --bits) file[below(size)] ^= 1 << below(8);
        break;
      case 4:
        for (int64_t bits = below(4); bits >= 0; --bits) file[below(std::min<int64_t>(size, 600))] ^= 1 << below(8);
        break;
      case 5: put(file, below(2) ? 4 : 8, telling(size), 4); break;  // where the directory is, and how long
      case 6: put(file, 10 + 12 * below(16) + 2 * below(4), telling(size), 2 << below(2)); break;
      case 7: put(file, 10 + 12 * below(16) + 8, telling(size), 4); break;  // an entry's value or offset
    }
  }

  uint32_t telling(int64_t size) {
    const int64_t choices[] = {0,          1,        2,        3,          4,          7,        8,       12, 16, 255,
                               0x7fff,     0xffff,   0x10000,  0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff,
                               size,       size - 1, size + 1, size - 2,   size - 4,   size - 8, size / 2, below(size + 1)};
    return static_cast<uint32_t>(choices[below(std::size(choices))]);
  }

  static void put(Bytes& file, int64_t offset, uint32_t value, size_t width) {
    if (offset + width <= file.size()) std::memcpy(file.data() + offset, &value, width);
  }

  Bytes seed_;
  std::mt19937_64 random_;
};

// One input, in a block of memory of exactly its size.
bool read(const Bytes& content, const strobe::Shape& shape, Mutator& chance) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[content.size()]);
  std::copy(content.begin(), content.end(), exact.get());
  const std::span<const uint8_t> file(exact.get(), content.size());
  const auto found = strobe::find_pixels(file, shape);
  if (!found) return false;

  const int64_t pixels = shape.pixels();
  const bool inside = found->data() >= file.data() && found->data() + found->size() <= file.data() + file.size();
  if (!inside || static_cast<int64_t>(found->size()) != 2 * pixels * shape.bands) std::abort();
  std::vector<int64_t> bands(1 + chance.below(6));
  for (int64_t& band : bands) band = chance.below(shape.bands);
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

int main(int count, char** words) {
  if (count != 7) return 2;
  const auto number = [&](int word) { return std::strtoll(words[word], nullptr, 10); };
  const strobe::Shape right{number(3), number(4), number(5)};
  std::ifstream stream(words[6], std::ios::binary);
  Mutator mutator(Bytes(std::istreambuf_iterator<char>(stream), {}), number(2));
  int64_t accepted = 0;
  for (int64_t input = 0; input < number(1); ++input) {
    strobe::Shape shape = right;
    if (mutator.below(8) == 0) {
      int64_t* const sides[] = {&shape.bands, &shape.height, &shape.width};
      *sides[mutator.below(3)] = 1 + mutator.below(mutator.below(2) ? 40 : strobe::Shape::kMostSide);
    }
    accepted += read(mutator.next(), shape, mutator);
  }
  std::printf("%lld accepted, %lld not\n", static_cast<long long>(accepted), number(1) - accepted);
  return 0;
}

// Damaged JPEGs, decoded under sanitizers: fuzz_jpeg INPUTS SEED PHOTO...
// Each input is a photo that was mutated, in memory of exactly its size; boxes may lie outside. What is read of it must
// equal a full decode. Prints how many were read.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "jpeg.h"

namespace {

using Content = std::vector<uint8_t>;

std::mt19937_64 generator;

size_t below(size_t bound) { return bound == 0 ? 0 : generator() % bound; }

Content load(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return Content(std::istreambuf_iterator<char>(stream), {});
}

// The place of a marker's length, or 0.
size_t any_marker(const Content& photo) {
  std::vector<size_t> places;
  for (size_t at = 0; at + 4 < photo.size(); at++)
    if (photo[at] == 0xff && photo[at + 1] >= 0xc0 && photo[at + 1] != 0xff) places.push_back(at + 2);
  return places.empty() ? 0 : places[below(places.size())];
}

void mutate(Content& photo, const Content& other) {
  if (photo.empty()) return;
  switch (below(9)) {
    case 0:
      photo.resize(below(photo.size() + 1));
      break;
    case 1:
      for (size_t count = 1 + below(8); count > 0; count--) photo[below(photo.size())] ^= uint8_t(1u << below(8));
      break;
    case 2:  // in the header
      for (size_t count = 1 + below(6); count > 0; count--)
        photo[below(std::min<size_t>(photo.size(), 700))] = uint8_t(generator());
      break;
    case 3: {  // what follows a marker
      const size_t at = any_marker(photo);
      for (size_t count = 1 + below(4); count > 0; count--)
        photo[std::min(at + below(24), photo.size() - 1)] = uint8_t(generator());
      break;
    }
    case 4: {  // sizes
      for (size_t at = 0; at + 9 < photo.size(); at++)
        if (photo[at] == 0xff && photo[at + 1] >= 0xc0 && photo[at + 1] <= 0xc2) {
          static constexpr uint16_t sizes[] = {0, 1, 7, 8, 9, 63, 255, 256, 1000, 32767, 65500, 65535};
          for (size_t side = 0; side < 2; side++) {
            const uint16_t size = below(2) ? sizes[below(std::size(sizes))] : uint16_t(below(200));
            photo[at + 5 + 2 * side] = uint8_t(size >> 8);
            photo[at + 6 + 2 * side] = uint8_t(size);
          }
          break;
        }
      break;
    }
    case 5: {  // a piece of another photo
      const size_t from = below(other.size()), length = below(std::min<size_t>(other.size() - from, 400));
      const size_t at = below(photo.size());
      if (below(2))
        photo.insert(photo.begin() + at, other.begin() + from, other.begin() + from + length);
      else
        std::copy_n(other.begin() + from, std::min(length, photo.size() - at), photo.begin() + at);
      break;
    }
    case 6: {  // a piece goes
      const size_t at = below(photo.size());
      photo.erase(photo.begin() + at, photo.begin() + at + below(std::min<size_t>(photo.size() - at, 200)));
      break;
    }
    case 7: {  // a piece twice
      const size_t at = below(photo.size()), length = below(std::min<size_t>(photo.size() - at, 300));
      const Content piece(photo.begin() + at, photo.begin() + at + length);
      photo.insert(photo.begin() + below(photo.size()), piece.begin(), piece.end());
      break;
    }
    default:  // markers where there were none
      photo[below(photo.size())] = 0xff;
      if (const size_t at = below(photo.size()); at + 1 < photo.size()) {
        photo[at] = 0xff;
        photo[at + 1] = uint8_t(0xc0 + below(64));
      }
  }
}

int64_t side_near(int64_t size) {
  static constexpr int64_t odd[] = {0, -1, 1, 70000, INT64_MAX, INT64_MIN};
  return below(16) == 0 ? odd[below(std::size(odd))] : 1 + static_cast<int64_t>(below(size < 1 ? 1 : size));
}

// A damaged photo, too, looks the same in part as in whole; only the whole may end too early.
void compare(strobe::Bytes photo, const strobe::Size& whole, const strobe::Box& box, const uint8_t* out) {
  const int64_t area = whole.height * whole.width;
  const std::unique_ptr<uint8_t[]> pixels(new uint8_t[3 * area]);
  if (strobe::crop_jpeg(photo, {0, 0, whole.height, whole.width}, pixels.get())) return;
  for (int64_t row = 0; row < 3 * box.height; row++) {
    const int64_t place = row / box.height * area + (box.top + row % box.height) * whole.width + box.left;
    if (std::memcmp(out + row * box.width, &pixels[place], size_t(box.width)) != 0) {
      std::fprintf(stderr, "the part at %ld, %ld of %ld x %ld is not that of the whole\n", long(box.top),
                   long(box.left), long(whole.height), long(whole.width));
      std::exit(1);
    }
  }
}

bool decode(strobe::Bytes photo) {
  strobe::Size size{};
  if (strobe::measure_jpeg(photo, size)) size = {64, 64};
  const strobe::Size whole = size;
  if (below(4) && size.height > 0) size = {std::min<int64_t>(size.height, 400), std::min<int64_t>(size.width, 400)};
  const int64_t height = side_near(size.height), width = side_near(size.width);
  const auto place = [](int64_t room) {
    return below(16) ? int64_t(below(size_t(std::max<int64_t>(room, 0)) + 1)) : side_near(300) / 2 - 50;
  };
  strobe::Box box{0, 0, height, width};
  if (height > 0 && width > 0) box = {place(size.height - height), place(size.width - width), height, width};
  const char* refused;
  const bool countable = height > 0 && width > 0 && height <= 70000 && width <= 70000 && height * width < (1 << 22);
  if (countable && below(2)) {
    const std::unique_ptr<uint8_t[]> out(new uint8_t[3 * height * width]);
    refused = strobe::crop_jpeg(photo, box, out.get());
    if (!refused && whole.height * whole.width < (1 << 18)) compare(photo, whole, box, out.get());
  } else {
    const auto side = static_cast<int64_t>(1 + below(80));
    const std::unique_ptr<uint8_t[]> out(new uint8_t[3 * side * side]);
    refused = strobe::square_jpeg(photo, box, side, below(2), out.get());
  }
  if (refused && std::strlen(refused) == 0) std::abort();
  return refused == nullptr;
}

}  // namespace

int main(int count, char** arguments) {
  const long inputs = std::atol(arguments[1]);
  generator.seed(std::strtoull(arguments[2], nullptr, 10));
  std::vector<Content> photos;
  for (int i = 3; i < count; i++) photos.push_back(load(arguments[i]));
  long read = 0;
  for (long i = 0; i < inputs; i++) {
    Content photo = photos[below(photos.size())];
    for (size_t times = below(4); times > 0; times--) mutate(photo, photos[below(photos.size())]);
    const std::unique_ptr<uint8_t[]> exact(new uint8_t[photo.size()]);
    std::copy(photo.begin(), photo.end(), exact.get());
    read += decode({exact.get(), photo.size()});
  }
  std::printf("%ld of %ld read\n", read, inputs);
}

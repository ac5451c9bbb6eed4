// Damaged JPEGs, decoded under sanitizers: fuzz_jpeg INPUTS SEED PHOTO...
// Boxes may lie outside. What is read of a photo must equal a full decode.

#include <cstring>

#include "fuzz.h"
#include "jpeg.h"

namespace {

using fuzz::below, fuzz::Content, fuzz::generator;

// What follows a marker, the sizes, or markers where there were none.
void change(Content& photo) {
  const size_t kind = below(3);
  std::vector<size_t> places;  // of markers' lengths or, for the sizes, of frame headers' alone
  for (size_t at = 0; at + 9 < photo.size(); at++)
    if (photo[at] == 0xff && photo[at + 1] >= 0xc0 && photo[at + 1] <= (kind == 1 ? 0xc2 : 0xfe))
      places.push_back(at + 2);
  if (kind == 2 || places.empty()) {
    photo[below(photo.size())] = 0xff;
    if (const size_t at = below(photo.size()); at + 1 < photo.size()) {
      photo[at] = 0xff;
      photo[at + 1] = uint8_t(0xc0 + below(64));
    }
    return;
  }
  const size_t at = places[below(places.size())];
  if (kind == 0) {
    for (size_t count = 1 + below(4); count > 0; count--)
      photo[std::min(at + below(24), photo.size() - 1)] = uint8_t(generator());
    return;
  }
  static constexpr uint16_t sizes[] = {0, 1, 7, 8, 9, 63, 255, 256, 1000, 32767, 65500, 65535};
  for (size_t side = 0; side < 2; side++) {
    const uint16_t size = below(2) ? sizes[below(std::size(sizes))] : uint16_t(below(200));
    photo[at + 3 + 2 * side] = uint8_t(size >> 8);
    photo[at + 4 + 2 * side] = uint8_t(size);
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
  if (strobe::square_jpeg(photo, {0, 0, whole.height, whole.width}, 0, false, pixels.get())) return;
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
    refused = strobe::square_jpeg(photo, box, 0, false, out.get());
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

int main(int count, char** words) {
  return fuzz::run(words[1], words[2], {words + 3, size_t(count - 3)}, change, decode);
}

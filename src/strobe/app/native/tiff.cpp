#include "tiff.h"

#include <algorithm>
#include <array>
#include <bit>
#include <concepts>
#include <cstring>

namespace strobe {
namespace {

// What is in the file at `offset`. The caller has checked that it is there.
template <std::integral Number>
Number at(Bytes file, uint64_t offset) {
  Number number;
  std::memcpy(&number, file.data() + offset, sizeof(number));
  return number;
}

bool holds(Bytes file, uint64_t offset, uint64_t size) { return offset <= file.size() && size <= file.size() - offset; }

// The entries that matter, and their tags: of TIFF 6.0, section 8, 13, 14, 15, 19, and Adobe's TIFF technical note 1.
enum Entry {
  kWidth, kHeight, kBits, kCompression, kFillOrder, kOffsets, kSamples, kRows, kBytes, kPlanar, kPredictor, kFormat,
  kEntries
};
constexpr uint16_t kTags[kEntries] = {256, 257, 258, 259, 266, 273, 277, 278, 279, 284, 317, 339};
constexpr uint16_t kPhotometric = 262, kTileWidth = 322, kTileByteCounts = 325, kSubIFDs = 330;
constexpr uint16_t kImageDepth = 32997;  // of libtiff

// For each tag from the first to the last, which entry it is of, or kEntries.
constexpr auto kPlaces = [] {
  std::array<uint8_t, kTags[kEntries - 1] - kTags[0] + 1> places{};
  places.fill(kEntries);
  for (uint8_t entry = 0; entry < kEntries; ++entry) places[kTags[entry] - kTags[0]] = entry;
  return places;
}();

// An entry's numbers: SHORT or LONG, in the entry itself when they fit. No numbers: absent, elsewhere than in the file,
// or of another type.
class Numbers {
 public:
  Numbers() = default;
  Numbers(Bytes file, uint64_t entry) {
    const auto type = at<uint16_t>(file, entry + 2);
    const auto count = at<uint32_t>(file, entry + 4);
    const uint64_t width = type == 3 ? 2 : type == 4 ? 4 : 0;
    const uint64_t start = width * count <= 4 ? entry + 8 : at<uint32_t>(file, entry + 8);
    if (width == 0 || !holds(file, start, width * count)) return;
    file_ = file, start_ = start, count_ = count, width_ = width;
  }

  uint64_t size() const { return count_; }
  uint64_t operator[](uint64_t i) const {
    return width_ == 2 ? at<uint16_t>(file_, start_ + 2 * i) : at<uint32_t>(file_, start_ + 4 * i);
  }
  bool is(uint64_t value) const { return count_ == 1 && (*this)[0] == value; }
  bool all(uint64_t value, uint64_t count) const {
    bool same = count_ == count;
    for (uint64_t i = 0; same && i < count; ++i) same = (*this)[i] == value;
    return same;
  }

 private:
  Bytes file_;
  uint64_t start_ = 0, count_ = 0, width_ = 0;
};

// The only directory.
struct Directory {
  std::array<Numbers, kEntries> entries;
  uint32_t seen = 0;  // a bit for each of them

  // False when the entry makes the file one of another form.
  bool add(Bytes file, uint64_t entry) {
    const auto tag = at<uint16_t>(file, entry);
    if ((kTileWidth <= tag && tag <= kTileByteCounts) || tag == kSubIFDs) return false;
    if (tag == kImageDepth) return Numbers(file, entry).is(1);
    if (tag == kPhotometric && Numbers(file, entry).is(6)) return false;  // YCbCr, whose samples may be fewer
    const size_t place = static_cast<size_t>(tag) - kTags[0];
    if (place >= kPlaces.size() || kPlaces[place] == kEntries) return true;
    if (has(kPlaces[place])) return false;
    seen |= 1u << kPlaces[place];
    entries[kPlaces[place]] = Numbers(file, entry);
    return entries[kPlaces[place]].size() > 0;
  }

  const Numbers& operator[](int entry) const { return entries[entry]; }
  bool has(int entry) const { return seen & (1u << entry); }
};

std::optional<Directory> read_directory(Bytes file) {
  constexpr uint8_t kLittleEndian[] = {'I', 'I', 42, 0};
  if (file.size() < 8 || std::memcmp(file.data(), kLittleEndian, 4) != 0) return {};
  const uint64_t start = at<uint32_t>(file, 4);
  if (!holds(file, start, 2)) return {};
  const uint64_t entries = at<uint16_t>(file, start), end = start + 2 + 12 * entries;
  if (!holds(file, end, 4) || at<uint32_t>(file, end) != 0) return {};  // another page follows
  Directory directory;
  for (uint64_t entry = start + 2; entry < end; entry += 12) {
    if (!directory.add(file, entry)) return {};
  }
  return directory;
}

bool fits(const Directory& found, const Shape& shape) {
  const auto is = [&](Entry entry, int64_t value, bool when_absent) {
    return found.has(entry) ? found[entry].is(static_cast<uint64_t>(value)) : when_absent;
  };
  const auto bands = static_cast<uint64_t>(shape.bands);
  return is(kWidth, shape.width, false) && is(kHeight, shape.height, false) &&
         is(kSamples, shape.bands, bands == 1) && found[kBits].all(16, bands) && is(kCompression, 1, true) &&
         is(kFillOrder, 1, true) && (bands == 1 || is(kPlanar, 1, true)) && is(kPredictor, 1, true) &&
         (!found.has(kFormat) || found[kFormat].all(1, bands) || found[kFormat].is(1));
}

// Vectors of 8 samples, in the words that GCC before 12 has for them, or else Clang's and GCC's.
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ < 12
#define STROBE_SHUFFLE(a, b, ...) __builtin_shuffle(a, b, Lanes{__VA_ARGS__})
#else
#define STROBE_SHUFFLE(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#endif

using Lanes = uint16_t __attribute__((vector_size(16)));
using Planes = Lanes[4];

Lanes one_pixel(const uint8_t* from) {
  uint64_t samples;
  std::memcpy(&samples, from, sizeof(samples));
  using Halves = uint64_t __attribute__((vector_size(16)));
  return (Lanes)Halves{samples, 0};
}

// 8 pixels of 4 samples to 4 planes of 8.
void transpose(const uint8_t* from, int64_t stride, Planes& planes) {
  Lanes pair[4];  // a0 a1 b0 b1 c0 c1 d0 d1, of pixels 0 and 1, 2 and 3, ...
  for (int i = 0; i < 4; ++i) {
    const Lanes first = one_pixel(from + 2 * i * stride), second = one_pixel(from + (2 * i + 1) * stride);
    pair[i] = STROBE_SHUFFLE(first, second, 0, 8, 1, 9, 2, 10, 3, 11);
  }
  Lanes low[2], high[2];  // a0 a1 a2 a3 b0 b1 b2 b3, and c and d
  for (int i = 0; i < 2; ++i) {
    low[i] = STROBE_SHUFFLE(pair[2 * i], pair[2 * i + 1], 0, 1, 8, 9, 2, 3, 10, 11);
    high[i] = STROBE_SHUFFLE(pair[2 * i], pair[2 * i + 1], 4, 5, 12, 13, 6, 7, 14, 15);
  }
  planes[0] = STROBE_SHUFFLE(low[0], low[1], 0, 1, 2, 3, 8, 9, 10, 11);
  planes[1] = STROBE_SHUFFLE(low[0], low[1], 4, 5, 6, 7, 12, 13, 14, 15);
  planes[2] = STROBE_SHUFFLE(high[0], high[1], 0, 1, 2, 3, 8, 9, 10, 11);
  planes[3] = STROBE_SHUFFLE(high[0], high[1], 4, 5, 6, 7, 12, 13, 14, 15);
}

// Up to 4 different bands, each one of the 4 consecutive samples from `first`; returns the pixels done, by eights.
int64_t select_near(
    const uint8_t* from, int64_t pixels, int64_t stride, int64_t first, std::span<const int64_t> bands, uint16_t* to) {
  Lanes unwanted;
  uint16_t* plane[4];
  int64_t step[4] = {0, 0, 0, 0};
  std::fill_n(plane, 4, reinterpret_cast<uint16_t*>(&unwanted));
  for (size_t i = 0; i < bands.size(); ++i) plane[bands[i] - first] = to + i * pixels, step[bands[i] - first] = 1;
  const int64_t eights = pixels / 8 * 8;
  from += 2 * first;
  for (int64_t pixel = 0; pixel < eights; pixel += 8) {
    Planes planes;
    transpose(from + pixel * stride, stride, planes);
    for (int lane = 0; lane < 4; ++lane) std::memcpy(plane[lane] + step[lane] * pixel, &planes[lane], sizeof(Lanes));
  }
  return eights;
}

void select_one(const uint8_t* from, int64_t pixels, int64_t stride, uint16_t* to) {
  for (int64_t pixel = 0; pixel < pixels; ++pixel) std::memcpy(to + pixel, from + pixel * stride, 2);
}

}  // namespace

std::optional<Bytes> find_pixels(Bytes file, const Shape& shape) {
  if constexpr (std::endian::native != std::endian::little) return {};
  const auto found = read_directory(file);
  if (!found || !fits(*found, shape)) return {};

  const auto& directory = *found;
  const auto height = static_cast<uint64_t>(shape.height);
  const uint64_t row = 2 * static_cast<uint64_t>(shape.width) * static_cast<uint64_t>(shape.bands);
  if (directory.has(kRows) && directory[kRows].size() != 1) return {};
  const uint64_t rows = directory.has(kRows) ? std::min(directory[kRows][0], height) : height;
  if (rows == 0) return {};
  const uint64_t strips = (height + rows - 1) / rows;
  if (directory[kOffsets].size() != strips || directory[kBytes].size() != strips) return {};
  const uint64_t start = directory[kOffsets][0];
  uint64_t end = start;
  for (uint64_t strip = 0; strip < strips; ++strip) {
    const uint64_t size = std::min(rows, height - strip * rows) * row;
    if (directory[kOffsets][strip] != end || directory[kBytes][strip] != size) return {};
    end += size;
  }
  if (!holds(file, start, end - start)) return {};
  if (file.size() - end >= end - start) return {};  // room for more images, of which the description may tell
  return file.subspan(start, end - start);
}

void select_bands(const uint8_t* from, int64_t pixels, int64_t samples, std::span<const int64_t> bands, uint16_t* to) {
  const int64_t stride = 2 * samples;
  for (size_t done = 0; done < bands.size();) {
    size_t count = 1;
    int64_t finished = 0;
    if (samples >= 4) {
      int64_t low = bands[done], high = low;
      for (; done + count < bands.size(); ++count) {
        const int64_t band = bands[done + count];
        const auto before = bands.subspan(done, count);
        if (std::max(high, band) - std::min(low, band) > 3 || std::ranges::find(before, band) != before.end()) break;
        low = std::min(low, band), high = std::max(high, band);
      }
      const int64_t first = std::min(low, samples - 4);
      finished = select_near(from, pixels, stride, first, bands.subspan(done, count), to + done * pixels);
    }
    for (size_t i = done; i < done + count; ++i) {
      select_one(from + finished * stride + 2 * bands[i], pixels - finished, stride, to + i * pixels + finished);
    }
    done += count;
  }
}

}  // namespace strobe

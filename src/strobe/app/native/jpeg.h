// Crops of JPEG photos: of a photo only the crop is made, and reading ends with its last row.
//
// Pixels are those of a full decode by libjpeg-turbo (accurate integer transform, smooth upsampling of colour) that
// is cropped afterwards, bit for bit, wherever the crop lies. The orientation that a camera may have noted is ignored.
// Refused are CMYK photos, 12 bits, progressive photos that lack scans (how those are smoothed depends on libjpeg's
// version) or have very many, and sizes that nobody photographs. Nothing is ever printed.
#pragma once

#include <cstdint>

#include "files.h"

namespace strobe {

constexpr int64_t kMostPixels = int64_t{1} << 28;

struct Size {
  int64_t height, width;
};

struct Box {
  int64_t top, left, height, width;  // in pixels of the photo
};

// False: whatever it is, it is no JPEG.
inline bool may_be_jpeg(Bytes photo) { return photo.size() >= 2 && photo[0] == 0xff && photo[1] == 0xd8; }

// What follows returns nullptr when it is done; otherwise why not, valid until the thread's next call.

// The size of a photo, by its header alone.
const char* measure_jpeg(Bytes photo, Size& size);

// The box as a square: out is (3, side, side). Of another size, it is resampled as Pillow does (resample.h). When
// `scaled`, the photo is decoded at the smallest of 1/8, 2/8 .. 8/8 of its size that leaves the box no smaller than the
// square. A side of 0 leaves the box as it is: out is (3, height, width).
const char* square_jpeg(Bytes photo, const Box& box, int64_t side, bool scaled, uint8_t* out);

}  // namespace strobe

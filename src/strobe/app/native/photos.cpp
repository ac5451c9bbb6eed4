// The operators on photos, for torch.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <vector>

#include "files.h"
#include "jpeg.h"
#include "pool.h"
#include "tensors.h"

namespace {

using namespace strobe;

constexpr int64_t kHeader = 64 << 10;  // bytes that hold nearly every photo's header

Bytes bytes(const Tensor& photo) {
  check(photo, ScalarType::Byte, 1, "data");
  return numbers<uint8_t>(photo);
}

// Makes a square of each of `count` photos, whose bytes `photo(i)` gives; says of each whether that failed.
template <class Photo>
Tensor squares(Tensor& out, const Tensor& boxes, int64_t count, bool scaled, int64_t threads, Photo&& photo) {
  check(out, ScalarType::Byte, 4, "out");
  check(boxes, ScalarType::Long, 2, "boxes");
  const int64_t side = out.size(3);
  STD_TORCH_CHECK(
      out.size(0) == count && out.size(1) == 3 && out.size(2) == side && side >= 1,
      "out must be photos x 3 x side x side");
  STD_TORCH_CHECK(boxes.size(0) == count && boxes.size(1) == 4, "boxes must be photos x 4");
  check_threads(threads);
  Tensor status = torch::stable::new_empty(boxes, {count}, ScalarType::Byte);
  auto* const failed = static_cast<uint8_t*>(status.mutable_data_ptr());
  auto* const pixels = static_cast<uint8_t*>(out.mutable_data_ptr());
  const auto places = numbers<int64_t>(boxes);
  parallel(count, threads, [&](int64_t i) noexcept {
    const Box box{places[4 * i], places[4 * i + 1], places[4 * i + 2], places[4 * i + 3]};
    failed[i] = square_jpeg(photo(i), box, side, scaled, pixels + i * 3 * side * side) != nullptr;
  });
  return status;
}

Tensor decode_crop_jpeg(Tensor data, int64_t top, int64_t left, int64_t height, int64_t width) {
  const Bytes photo = bytes(data);
  STD_TORCH_CHECK(
      height >= 1 && width >= 1 && height <= kMostPixels && width <= kMostPixels && height * width <= kMostPixels,
      "a box of ", height, " x ", width);
  Tensor out = torch::stable::new_empty(data, {3, height, width}, ScalarType::Byte);
  const char* refused =
      crop_jpeg(photo, {top, left, height, width}, static_cast<uint8_t*>(out.mutable_data_ptr()));
  STD_TORCH_CHECK(refused == nullptr, "The photo cannot be decoded: ", refused);
  return out;
}

Tensor decode_crop_jpegs(Tensor out, std::vector<Tensor> data, Tensor boxes, bool scaled, int64_t threads) {
  std::vector<Bytes> photos;
  for (const Tensor& photo : data) photos.push_back(bytes(photo));
  const auto count = static_cast<int64_t>(photos.size());
  return squares(out, boxes, count, scaled, threads, [&](int64_t i) { return photos[i]; });
}

Tensor decode_photos(Tensor out, Tensor data, Tensor ends, Tensor boxes, bool scaled, int64_t threads) {
  const Paths contents = checked_contents(data, ends);
  const auto count = static_cast<int64_t>(contents.ends.size());
  return squares(out, boxes, count, scaled, threads, [&](int64_t i) { return contents.part(i); });
}

// By the beginning of the file, or by all of it where that is not enough.
Size measure(const Paths& paths, int64_t number) {
  Size size{};
  {
    const File file(paths, number);
    const auto memory = scratch(kHeader);
    if (!file || memory.empty() || file.size() <= 0) return size;
    const int64_t count = file.read(memory.first(kHeader));
    if (count <= 0) return size;
    const Bytes beginning(memory.data(), static_cast<size_t>(count));
    if (!measure_jpeg(beginning, size) || count < kHeader || !may_be_jpeg(beginning)) return size;
  }
  measure_jpeg(read_file(paths, number), size);
  return size;
}

// Of `count` photos, whose size `size(i)` gives.
template <class Measure>
Tensor sizes_of(const Tensor& like, int64_t count, int64_t threads, Measure&& size) {
  check_threads(threads);
  Tensor sizes = torch::stable::new_empty(like, {count, 2}, ScalarType::Long);
  auto* const found = static_cast<int64_t*>(sizes.mutable_data_ptr());
  parallel(count, threads, [&](int64_t i) noexcept {
    const Size one = size(i);
    found[2 * i] = one.height;
    found[2 * i + 1] = one.width;
  });
  return sizes;
}

Tensor measure_photos(Tensor text, Tensor ends, Tensor files, int64_t threads) {
  const Paths paths = checked_paths(text, ends);
  const auto wanted = checked_files(files, paths);
  return sizes_of(files, static_cast<int64_t>(wanted.size()), threads, [&](int64_t i) {
    return measure(paths, wanted[i]);
  });
}

Tensor measure_contents(Tensor data, Tensor ends, int64_t threads) {
  const Paths contents = checked_contents(data, ends);
  return sizes_of(ends, static_cast<int64_t>(contents.ends.size()), threads, [&](int64_t i) {
    Size size{};
    measure_jpeg(contents.part(i), size);
    return size;
  });
}

Tensor read_photos(
    Tensor out, Tensor text, Tensor ends, Tensor files, Tensor boxes, bool scaled, int64_t threads) {
  const Paths paths = checked_paths(text, ends);
  const auto wanted = checked_files(files, paths);
  const auto count = static_cast<int64_t>(wanted.size());
  return squares(out, boxes, count, scaled, threads, [&](int64_t i) { return read_file(paths, wanted[i]); });
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(strobe, m) {
  m.def("decode_crop_jpeg(Tensor data, int top, int left, int height, int width) -> Tensor");
  m.def("decode_crop_jpegs(Tensor(a!) out, Tensor[] data, Tensor boxes, bool scaled, int threads) -> Tensor");
  m.def("decode_photos(Tensor(a!) out, Tensor data, Tensor ends, Tensor boxes, bool scaled, int threads) -> Tensor");
  m.def("measure_contents(Tensor data, Tensor ends, int threads) -> Tensor");
  m.def("measure_photos(Tensor text, Tensor ends, Tensor files, int threads) -> Tensor");
  m.def(
      "read_photos(Tensor(a!) out, Tensor text, Tensor ends, Tensor files, Tensor boxes, bool scaled, int threads) "
      "-> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(strobe, CPU, m) {
  m.impl("decode_crop_jpeg", TORCH_BOX(&decode_crop_jpeg));
  m.impl("decode_crop_jpegs", TORCH_BOX(&decode_crop_jpegs));
  m.impl("decode_photos", TORCH_BOX(&decode_photos));
  m.impl("measure_contents", TORCH_BOX(&measure_contents));
  m.impl("measure_photos", TORCH_BOX(&measure_photos));
  m.impl("read_photos", TORCH_BOX(&read_photos));
}

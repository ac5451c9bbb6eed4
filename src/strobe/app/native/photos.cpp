// The operators on photos, for torch.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <optional>

#include "files.h"
#include "jpeg.h"
#include "pool.h"
#include "tensors.h"

namespace {

using namespace strobe;

constexpr int64_t kHeader = 64 << 10;  // bytes that hold nearly every photo's header

// Makes a square of each photo; says of each whether that failed.
Tensor read_photos(
    Tensor out, Tensor text, Tensor ends, std::optional<Tensor> chosen, Tensor boxes, bool scaled, int64_t threads) {
  const Files files(text, ends, chosen);
  check(out, ScalarType::Byte, 4, "out");
  check(boxes, ScalarType::Long, 2, "boxes");
  const int64_t count = files.count(), side = out.size(3);
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
    failed[i] = square_jpeg(files.bytes(i), box, side, scaled, pixels + i * 3 * side * side) != nullptr;
  });
  return status;
}

Tensor decode_crop_jpeg(Tensor data, int64_t top, int64_t left, int64_t height, int64_t width) {
  check(data, ScalarType::Byte, 1, "data");
  STD_TORCH_CHECK(
      height >= 1 && width >= 1 && height <= kMostPixels && width <= kMostPixels && height * width <= kMostPixels,
      "a box of ", height, " x ", width);
  Tensor out = torch::stable::new_empty(data, {3, height, width}, ScalarType::Byte);
  auto* const pixels = static_cast<uint8_t*>(out.mutable_data_ptr());
  const char* refused = square_jpeg(numbers<uint8_t>(data), {top, left, height, width}, 0, false, pixels);
  STD_TORCH_CHECK(refused == nullptr, "The photo cannot be decoded: ", refused);
  return out;
}

// By the beginning of the file, or by all of it where that is not enough.
Size measure(const Files& files, int64_t i) {
  Size size{};
  if (files.on_disk) {
    const File file(files.paths, files.number(i));
    const auto memory = scratch(kHeader);
    if (!file || memory.empty() || file.size() <= 0) return size;
    const int64_t count = file.read(memory.first(kHeader));
    if (count <= 0) return size;
    const Bytes beginning(memory.data(), static_cast<size_t>(count));
    if (!measure_jpeg(beginning, size) || count < kHeader || !may_be_jpeg(beginning)) return size;
  }
  measure_jpeg(files.bytes(i), size);
  return size;
}

Tensor measure_photos(Tensor text, Tensor ends, std::optional<Tensor> chosen, int64_t threads) {
  const Files files(text, ends, chosen);
  check_threads(threads);
  Tensor sizes = torch::stable::new_empty(ends, {files.count(), 2}, ScalarType::Long);
  auto* const found = static_cast<int64_t*>(sizes.mutable_data_ptr());
  parallel(files.count(), threads, [&](int64_t i) noexcept {
    const Size one = measure(files, i);
    found[2 * i] = one.height;
    found[2 * i + 1] = one.width;
  });
  return sizes;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(strobe, m) {
  m.def("decode_crop_jpeg(Tensor data, int top, int left, int height, int width) -> Tensor");
  m.def("measure_photos(Tensor text, Tensor ends, Tensor? files, int threads) -> Tensor");
  m.def(
      "read_photos(Tensor(a!) out, Tensor text, Tensor ends, Tensor? files, Tensor boxes, bool scaled, int threads) "
      "-> Tensor");
}

STABLE_TORCH_LIBRARY_IMPL(strobe, CPU, m) {
  m.impl("decode_crop_jpeg", TORCH_BOX(&decode_crop_jpeg));
  m.impl("measure_photos", TORCH_BOX(&measure_photos));
  m.impl("read_photos", TORCH_BOX(&read_photos));
}

// The operators on tiles, for torch.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
#include <optional>
#include <vector>

#include "files.h"
#include "pool.h"
#include "tensors.h"
#include "tiff.h"

namespace {

using namespace strobe;

Shape checked_shape(const std::vector<int64_t>& shape, const std::vector<int64_t>& bands) {
  STD_TORCH_CHECK(shape.size() == 3, "shape must be bands, height and width, not ", shape.size(), " numbers");
  for (const int64_t side : shape) STD_TORCH_CHECK(1 <= side && side <= Shape::kMostSide, "a side of ", side);
  for (const int64_t band : bands) STD_TORCH_CHECK(0 <= band && band < shape[0], "band ", band, " of ", shape[0]);
  return {shape[0], shape[1], shape[2]};
}

// Makes pixels of tiles; says of each whether that failed.
Tensor read_tiles(
    Tensor out, Tensor text, Tensor ends, std::optional<Tensor> chosen, std::vector<int64_t> bands,
    std::vector<int64_t> shape, int64_t threads) {
  const Files files(text, ends, chosen);
  const Shape tile = checked_shape(shape, bands);
  const int64_t count = files.count(), planes = static_cast<int64_t>(bands.size());
  check(out, ScalarType::UInt16, 4, "out");
  const int64_t expected[] = {count, planes, tile.height, tile.width};
  STD_TORCH_CHECK(std::ranges::equal(expected, out.sizes()), "out must be files x bands x height x width");
  check_threads(threads);

  Tensor status = torch::stable::new_empty(ends, {count}, ScalarType::Byte);
  auto* const slots = static_cast<uint16_t*>(out.mutable_data_ptr());
  auto* const failed = static_cast<uint8_t*>(status.mutable_data_ptr());
  parallel(count, threads, [&](int64_t i) noexcept {
    const auto pixels = find_pixels(files.bytes(i), tile);
    if (pixels) select_bands(pixels->data(), tile.pixels(), tile.bands, bands, slots + i * planes * tile.pixels());
    failed[i] = !pixels;
  });
  return status;
}

// The floor of any loader that has one file for each image.
int64_t read_only(Tensor text, Tensor ends, Tensor chosen, int64_t threads) {
  const Files files(text, ends, chosen);
  check_threads(threads);
  std::atomic<int64_t> bytes = 0;
  parallel(files.count(), threads, [&](int64_t i) noexcept {
    const File file(files.paths, files.number(i));
    const auto memory = scratch(size_t{1} << 20);
    if (!file || memory.empty()) return;
    int64_t count;
    do {  // a file that leaves room is at its end: no second call to learn that
      count = file.read_once(memory);
      bytes += std::max<int64_t>(count, 0);
    } while (count == static_cast<int64_t>(memory.size()));
  });
  return bytes;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(strobe, m) {
  m.def(
      "read_tiles(Tensor(a!) out, Tensor text, Tensor ends, Tensor? files, int[] bands, int[] shape, int threads) "
      "-> Tensor");
  m.def("read_only(Tensor text, Tensor ends, Tensor files, int threads) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(strobe, CPU, m) {
  m.impl("read_tiles", TORCH_BOX(&read_tiles));
  m.impl("read_only", TORCH_BOX(&read_only));
}

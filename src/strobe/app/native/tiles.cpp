// The operators on tiles, for torch.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <atomic>
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

// Makes pixels of `count` tiles, whose bytes `file(i)` gives; says of each whether that failed.
template <class File>
Tensor decode(
    Tensor& out, const Tensor& like, int64_t count, const std::vector<int64_t>& bands,
    const std::vector<int64_t>& shape, int64_t threads, File&& file) {
  const Shape tile = checked_shape(shape, bands);
  const int64_t planes = static_cast<int64_t>(bands.size());
  check(out, ScalarType::UInt16, 4, "out");
  const int64_t expected[] = {count, planes, tile.height, tile.width};
  STD_TORCH_CHECK(std::ranges::equal(expected, out.sizes()), "out must be files x bands x height x width");
  check_threads(threads);

  Tensor status = torch::stable::new_empty(like, {count}, ScalarType::Byte);
  auto* const slots = static_cast<uint16_t*>(out.mutable_data_ptr());
  auto* const failed = static_cast<uint8_t*>(status.mutable_data_ptr());
  parallel(count, threads, [&](int64_t i) noexcept {
    const auto pixels = find_pixels(file(i), tile);
    if (pixels) select_bands(pixels->data(), tile.pixels(), tile.bands, bands, slots + i * planes * tile.pixels());
    failed[i] = !pixels;
  });
  return status;
}

Tensor read_tiles(
    Tensor out, Tensor text, Tensor ends, Tensor files, std::vector<int64_t> bands, std::vector<int64_t> shape,
    int64_t threads) {
  const Paths paths = checked_paths(text, ends);
  const auto wanted = checked_files(files, paths);
  const auto count = static_cast<int64_t>(wanted.size());
  return decode(out, files, count, bands, shape, threads, [&](int64_t i) { return read_file(paths, wanted[i]); });
}

Tensor decode_tiles(
    Tensor out, Tensor data, Tensor ends, std::vector<int64_t> bands, std::vector<int64_t> shape, int64_t threads) {
  const Paths contents = checked_contents(data, ends);
  const auto count = static_cast<int64_t>(contents.ends.size());
  return decode(out, ends, count, bands, shape, threads, [&](int64_t i) { return contents.part(i); });
}

// The floor of any loader that has one file for each image.
int64_t read_only(Tensor text, Tensor ends, Tensor files, int64_t threads) {
  const Paths paths = checked_paths(text, ends);
  const auto wanted = checked_files(files, paths);
  check_threads(threads);
  std::atomic<int64_t> bytes = 0;
  parallel(static_cast<int64_t>(wanted.size()), threads, [&](int64_t i) noexcept {
    const File file(paths, wanted[i]);
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
      "read_tiles(Tensor(a!) out, Tensor text, Tensor ends, Tensor files, int[] bands, int[] shape, int threads) "
      "-> Tensor");
  m.def("decode_tiles(Tensor(a!) out, Tensor data, Tensor ends, int[] bands, int[] shape, int threads) -> Tensor");
  m.def("read_only(Tensor text, Tensor ends, Tensor files, int threads) -> int");
}

STABLE_TORCH_LIBRARY_IMPL(strobe, CPU, m) {
  m.impl("read_tiles", TORCH_BOX(&read_tiles));
  m.impl("decode_tiles", TORCH_BOX(&decode_tiles));
  m.impl("read_only", TORCH_BOX(&read_only));
}

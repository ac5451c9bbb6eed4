// A convolution of one plane, for torch.

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <array>

#include "tensors.h"

namespace {

using namespace strobe;

struct Sides {
  int64_t height, width;
};

// So many neighbouring sums stay in registers while the kernel passes over them.
constexpr int64_t kBlock = 16;

// `count` sums, kBlock at most, from `image` on, which lies where the kernel's last element meets the first sum.
template <class Number, bool whole>
void add_up(const Number* image, int64_t stride, const Number* kernel, Sides reach, int64_t count, Number* out) {
  std::array<Number, kBlock> sums{};
  for (int64_t i = 0; i < reach.height; ++i) {
    for (int64_t j = 0; j < reach.width; ++j) {
      const Number weight = kernel[(reach.height - 1 - i) * reach.width + reach.width - 1 - j];
      const Number* const pixels = image + i * stride + j;
      for (int64_t c = 0; c < (whole ? kBlock : count); ++c) sums[c] += pixels[c] * weight;
    }
  }
  std::copy_n(sums.begin(), whole ? kBlock : count, out);
}

template <class Number>
void convolve_plane(const Number* image, int64_t stride, const Number* kernel, Sides reach, Sides size, Number* out) {
  for (int64_t row = 0; row < size.height; ++row, image += stride, out += size.width) {
    int64_t column = 0;
    for (; column + kBlock <= size.width; column += kBlock)
      add_up<Number, true>(image + column, stride, kernel, reach, kBlock, out + column);
    if (column < size.width)
      add_up<Number, false>(image + column, stride, kernel, reach, size.width - column, out + column);
  }
}

template <class Number>
void fill(const Tensor& image, const Tensor& kernel, Sides size, Tensor& out) {
  convolve_plane(
      numbers<Number>(image).data(), image.size(1), numbers<Number>(kernel).data(),
      {kernel.size(0), kernel.size(1)}, size, static_cast<Number*>(out.mutable_data_ptr()));
}

Tensor convolve(Tensor image, Tensor kernel) {
  const ScalarType type = image.scalar_type();
  STD_TORCH_CHECK(
      type == ScalarType::Float || type == ScalarType::Double, "image must be of type Float or Double, not ",
      torch::headeronly::toString(type));
  check(image, type, 2, "image");
  check(kernel, type, 2, "kernel");
  for (const int64_t axis : {0, 1}) {
    STD_TORCH_CHECK(
        1 <= kernel.size(axis) && kernel.size(axis) <= image.size(axis), "the kernel's side of ", kernel.size(axis),
        " must be at least 1 and at most the image's, ", image.size(axis));
  }
  const Sides size{image.size(0) - kernel.size(0) + 1, image.size(1) - kernel.size(1) + 1};
  Tensor out = torch::stable::new_empty(image, {size.height, size.width});
  type == ScalarType::Float ? fill<float>(image, kernel, size, out) : fill<double>(image, kernel, size, out);
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(strobe, m) { m.def("convolve(Tensor image, Tensor kernel) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(strobe, CPU, m) { m.impl("convolve", TORCH_BOX(&convolve)); }

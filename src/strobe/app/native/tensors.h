// Arguments of operators: checked, then seen as spans.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <span>

#include "files.h"

namespace strobe {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

inline void check(const Tensor& tensor, ScalarType type, int64_t dimensions, const char* name) {
  STD_TORCH_CHECK(
      tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == type && tensor.dim() == dimensions,
      name, " must be a contiguous tensor of ", dimensions, " dimensions and type ", torch::headeronly::toString(type),
      " on the CPU");
}

inline void check_threads(int64_t threads) {
  STD_TORCH_CHECK(threads >= 1, "threads must be at least 1, not ", threads);
}

template <class Number>
std::span<const Number> numbers(const Tensor& tensor) {
  return {static_cast<const Number*>(tensor.const_data_ptr()), static_cast<size_t>(tensor.numel())};
}

inline Paths checked_paths(const Tensor& text, const Tensor& ends) {
  check(text, ScalarType::Byte, 1, "text");
  check(ends, ScalarType::Long, 1, "ends");
  return {numbers<uint8_t>(text), numbers<int64_t>(ends)};
}

// Whole files, one behind the other.
inline Paths checked_contents(const Tensor& data, const Tensor& ends) {
  const Paths contents = checked_paths(data, ends);
  for (size_t i = 0; i < contents.ends.size(); ++i) STD_TORCH_CHECK(contents.holds(static_cast<int64_t>(i)), "end ", i);
  return contents;
}

// The files' numbers, each of which `paths` holds.
inline std::span<const int64_t> checked_files(const Tensor& files, const Paths& paths) {
  check(files, ScalarType::Long, 1, "files");
  const auto wanted = numbers<int64_t>(files);
  for (const int64_t file : wanted) STD_TORCH_CHECK(paths.holds(file), "file ", file, " of ", paths.ends.size());
  return wanted;
}

}  // namespace strobe

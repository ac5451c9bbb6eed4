// Arguments of operators: checked, then seen as spans.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <cstdint>
#include <optional>
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

// The files that an operator works on: those `chosen` of the paths in `text` or, without a choice, contents that lie in
// it, one behind the other.
struct Files {
  Paths paths;
  std::span<const int64_t> chosen;
  bool on_disk;

  Files(const Tensor& text, const Tensor& ends, const std::optional<Tensor>& numbers_of_paths)
      : on_disk(numbers_of_paths.has_value()) {
    check(text, ScalarType::Byte, 1, "text");
    check(ends, ScalarType::Long, 1, "ends");
    paths = {numbers<uint8_t>(text), numbers<int64_t>(ends)};
    if (on_disk) {
      check(*numbers_of_paths, ScalarType::Long, 1, "files");
      chosen = numbers<int64_t>(*numbers_of_paths);
    }
    for (int64_t i = 0; i < count(); ++i)
      STD_TORCH_CHECK(paths.holds(number(i)), "file ", number(i), " of ", paths.ends.size());
  }

  int64_t count() const { return static_cast<int64_t>((on_disk ? chosen : paths.ends).size()); }
  int64_t number(int64_t i) const { return on_disk ? chosen[i] : i; }
  Bytes bytes(int64_t i) const { return on_disk ? read_file(paths, chosen[i]) : paths.part(i); }
};

}  // namespace strobe

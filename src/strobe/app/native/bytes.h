// What a file or a part of it is here.
#pragma once

#include <cstdint>
#include <span>

namespace strobe {

using Bytes = std::span<const uint8_t>;

}  // namespace strobe

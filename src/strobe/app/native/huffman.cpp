#include "huffman.h"

#include <algorithm>
#include <cstring>

namespace strobe {

HuffmanTable::Entry HuffmanTable::entry(int bits, uint8_t symbol) const {
  const auto code = static_cast<uint8_t>(bits);
  if (!of_values) return {code, symbol, 0, 0};
  const auto zeros = static_cast<uint8_t>(symbol >> 4), value = static_cast<uint8_t>(symbol & 15);
  if (value == 0 && zeros != 15) return {code, 0, 0, kEnd};
  return {code, value, zeros, static_cast<uint8_t>(zeros + 1)};
}

bool HuffmanTable::prepare(const JHUFF_TBL* table, bool values) {
  if (!table) return false;
  const bool same = ready && of_values == values && std::memcmp(table->bits + 1, made_of.bits + 1, 16) == 0 &&
                    std::memcmp(table->huffval, made_of.huffval, sizeof made_of.huffval) == 0;
  if (same) return true;  // as of most photos of one camera
  ready = false;
  of_values = values;
  entries.fill({});
  int32_t code = 0, symbols = 0;
  for (int length = 1; length <= 16; length++, code <<= 1) {
    const int32_t count = table->bits[length];
    if (symbols + count > 256 || code + count > (1 << length)) return false;
    offset[length] = symbols - code;
    last[length] = count ? code + count - 1 : -1;
    for (int32_t i = 0; i < count; i++, code++, symbols++) {
      const uint8_t symbol = table->huffval[symbols];
      if (!values && symbol > kMostSize) return false;
      if (length > kBits) continue;
      const int free = kBits - length;
      std::fill_n(entries.begin() + (code << free), 1 << free, entry(length, symbol));
    }
  }
  for (size_t bits = 0; bits < entries.size(); bits++) {
    const Entry first = entries[bits];
    const int taken = first.code + first.value;
    steps[bits] = {static_cast<uint8_t>(first.code ? taken : 0), first.moves};
    if (!first.code || first.moves == kEnd || taken >= kBits) continue;
    const Entry second = entries[bits << taken & ((1 << kBits) - 1)];
    if (second.code && taken + second.code <= kBits)
      steps[bits] = {static_cast<uint8_t>(taken + second.code + second.value),
                     static_cast<uint8_t>(first.moves + second.moves)};
  }
  made_of = *table;
  ready = true;
  return true;
}

HuffmanTable::Entry HuffmanTable::find(uint64_t bits) const {
  if (const Entry found = entries[bits >> (64 - kBits)]; found.code) return found;
  for (int length = kBits + 1; length <= 16; length++) {
    const auto code = static_cast<int32_t>(bits >> (64 - length));
    if (code <= last[length]) return entry(length, made_of.huffval[code + offset[length]]);
  }
  return {};
}

}  // namespace strobe

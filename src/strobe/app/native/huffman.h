// Tables that tell what the next bits of a JPEG's scan are: one code, or two at once where they are short.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>

#include <jpeglib.h>

namespace strobe {

struct HuffmanTable {
  static constexpr int kBits = 12;  // that are looked at; a longer code is looked for by its length

  struct Entry {
    uint8_t code;   // bits of the code; 0: longer than kBits, or none
    uint8_t value;  // bits that follow it
    uint8_t zeros;  // coefficients that are 0 before the value
    uint8_t moves;  // coefficients that it stands for, those zeros among them; kEnd: all that are left
  };
  struct Step {
    uint8_t bits, moves;  // of one code or two; 0 bits: see `entries`
  };
  static constexpr uint8_t kEnd = 128;
  static constexpr int kMostSize = 11;  // bits of a DC difference of 8-bit photos

  std::array<Entry, 1 << kBits> entries;
  std::array<Step, 1 << kBits> steps;
  std::array<int32_t, 17> last;    // the greatest code of each length, -1: none
  std::array<int32_t, 17> offset;  // of its symbol in `symbols`
  JHUFF_TBL made_of;
  bool of_values = false, ready = false;

  // False: no such code can be. `values`: symbols are runs and sizes (AC), else sizes alone (DC).
  bool prepare(const JHUFF_TBL* table, bool values);

  // The first code of these bits, of which the uppermost is the next; no bits: there is none.
  Entry find(uint64_t bits) const;

 private:
  Entry entry(int bits, uint8_t symbol) const;
};

}  // namespace strobe

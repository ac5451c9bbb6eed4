// The bits of a JPEG's scan: read from bytes that hold nothing else, written with what the format asks for, and tables
// that tell what the next ones are: one Huffman code, or two at once where they are short.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

#include <jpeglib.h>

namespace strobe {

inline uint64_t big_endian(const uint8_t* bytes) {
  uint64_t word;
  std::memcpy(&word, bytes, sizeof word);
  if constexpr (std::endian::native == std::endian::little) word = __builtin_bswap64(word);
  return word;
}

// Reads bits, from a position in bits. `bytes` go on for 8 more.
class BitReader {
 public:
  BitReader(const uint8_t* bytes, int64_t position) : bytes_(bytes), next_(bytes + position / 8) {
    fill();
    drop(static_cast<int>(position % 8));
  }

  // Makes 56 bits or more ready.
  void fill() {
    bits_ |= big_endian(next_) >> count_;
    next_ += (63 - count_) >> 3;
    count_ |= 56;
  }
  uint64_t bits() const { return bits_; }  // the next one is the uppermost
  uint32_t upper(int count) const { return static_cast<uint32_t>(bits_ >> (64 - count)); }  // 1 to 32
  void drop(int count) {
    bits_ <<= count;
    count_ -= count;
  }
  int64_t position() const { return (next_ - bytes_) * 8 - count_; }

 private:
  const uint8_t *bytes_, *next_;
  uint64_t bits_ = 0;
  int count_ = 0;
};

// Appends bits to `out`, a zero after each 0xff.
class BitWriter {
 public:
  static constexpr size_t kRoom = 8 << 10;     // bytes that no unit exceeds: 640 values of 31 bits, each byte twice
  static constexpr size_t kPadding = 4 << 10;  // libjpeg is fast as long as it has many bytes ahead

  explicit BitWriter(std::vector<uint8_t>& out) : out_(out), at_(out.size()) {}

  // Makes room for a unit and a marker.
  void reserve() {
    if (out_.size() - at_ < kRoom) out_.resize(2 * out_.size() + kRoom);
  }
  void put(uint32_t bits, int count) {  // 1 to 32
    bits_ = bits_ << count | bits;
    count_ += count;
    if (count_ < 32) return;
    const auto word = static_cast<uint32_t>(bits_ >> (count_ - 32));
    if ((~word - 0x01010101u) & word & 0x80808080u) return put_bytes();  // one of them is 0xff
    for (int i = 0; i < 4; i++) out_[at_ + i] = static_cast<uint8_t>(word >> (24 - 8 * i));
    at_ += 4;
    count_ -= 32;
  }
  void copy(BitReader from, int64_t count) {
    for (; count > 0; count -= 32) {
      const int some = static_cast<int>(std::min<int64_t>(count, 32));
      from.fill();
      put(from.upper(some), some);
      from.drop(some);
    }
  }
  // Ends the photo; zeros follow.
  void finish() {
    align();
    out_[at_++] = 0xff;
    out_[at_++] = 0xd9;
    out_.resize(at_);
    out_.resize(at_ + kPadding);
  }

 private:
  void put_bytes() {
    while (count_ >= 8) {
      const auto byte = static_cast<uint8_t>(bits_ >> (count_ -= 8));
      out_[at_++] = byte;
      if (byte == 0xff) out_[at_++] = 0;
    }
  }
  void align() {
    put_bytes();
    if (count_) put((1u << (8 - count_)) - 1, 8 - count_);
    put_bytes();
  }

  std::vector<uint8_t>& out_;
  size_t at_;
  uint64_t bits_ = 0;
  int count_ = 0;
};

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
  bool prepare(const JHUFF_TBL* table, bool values) {
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

  // The first code of these bits, of which the uppermost is the next; no bits: there is none.
  Entry find(uint64_t bits) const {
    if (const Entry found = entries[bits >> (64 - kBits)]; found.code) return found;
    for (int length = kBits + 1; length <= 16; length++) {
      const auto code = static_cast<int32_t>(bits >> (64 - length));
      if (code <= last[length]) return entry(length, made_of.huffval[code + offset[length]]);
    }
    return {};
  }

 private:
  Entry entry(int bits, uint8_t symbol) const {
    const auto code = static_cast<uint8_t>(bits);
    if (!of_values) return {code, symbol, 0, 0};
    const auto zeros = static_cast<uint8_t>(symbol >> 4), value = static_cast<uint8_t>(symbol & 15);
    if (value == 0 && zeros != 15) return {code, 0, 0, kEnd};
    return {code, value, zeros, static_cast<uint8_t>(zeros + 1)};
  }
};

}  // namespace strobe

// The bits of a JPEG's scan: read from bytes that hold nothing else, and written with what the format asks for.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

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

}  // namespace strobe

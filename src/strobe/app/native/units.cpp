#include "units.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <initializer_list>
#include <type_traits>

namespace strobe {
namespace {

constexpr int kMostSize = HuffmanTable::kMostSize;
constexpr int kSafe = DCTSIZE2 - 16;              // before it, the first code of two does not end the block
constexpr size_t kPadding = BitWriter::kPadding;  // more than a unit's bits, which may be read before that is noticed
constexpr uint8_t kLengths[] = {0, 1, 5, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0};  // of codes for the sizes 0 to 11
constexpr uint16_t kCodes[] = {0, 2, 3, 4, 5, 6, 14, 30, 62, 126, 254, 510};
constexpr uint8_t kCodeBits[] = {2, 3, 3, 3, 3, 3, 4, 5, 6, 7, 8, 9};

// Where units are stepped over.
struct Nowhere {
  void reserve() {}
};

int size_of(int32_t value) { return std::bit_width(static_cast<uint32_t>(value < 0 ? -value : value)); }

void append(std::vector<uint8_t>& out, std::initializer_list<int> bytes) {
  for (const int byte : bytes) out.push_back(static_cast<uint8_t>(byte));
}

}  // namespace

// Goes over units, in data that ends at bit `end`. Where `writer` keeps them, their values are copied; only their DC,
// which is the difference from the block before, is coded anew.
template <class Writer>
bool UnitCutter::pass(BitReader& shared, Writer& writer, int64_t units, int64_t end) {
  constexpr bool kept = std::is_same_v<Writer, BitWriter>;
  BitReader reader = shared;  // a copy stays in registers
  for (int64_t unit = 0; unit < units; unit++) {
    writer.reserve();
    for (int i = 0; i < block_count_; i++) {
      const Block& block = blocks_[i];
      reader.fill();
      const auto dc = block.dc->find(reader.bits());
      if (!dc.code) return false;
      reader.drop(dc.code);
      int32_t difference = 0;
      if (dc.value) {
        difference = static_cast<int32_t>(reader.upper(dc.value));
        if (difference < 1 << (dc.value - 1)) difference -= (1 << dc.value) - 1;
        reader.drop(dc.value);
      }
      int32_t& before = before_[block.component];
      before += difference;
      if (before < -32768 || before > 32767) return false;
      if constexpr (kept) {
        int32_t& written = written_[block.component];
        const int32_t change = before - written;
        const int size = size_of(change);
        if (size > kMostSize) return false;
        writer.put(kCodes[size], kCodeBits[size]);
        if (size) writer.put(static_cast<uint32_t>(change < 0 ? change + (1 << size) - 1 : change), size);
        written = before;
      }
      const int64_t begin = kept ? reader.position() : 0;
      const HuffmanTable::Step* const steps = block.ac->steps.data();
      int coefficient = 1;
      while (coefficient < DCTSIZE2) {
        reader.fill();
        auto step = steps[reader.bits() >> (64 - HuffmanTable::kBits)];
        if (coefficient < kSafe && step.bits) {
          coefficient += step.moves;
          reader.drop(step.bits);
          step = steps[reader.bits() >> (64 - HuffmanTable::kBits)];
          if (coefficient >= kSafe || !step.bits) continue;
          coefficient += step.moves;
          reader.drop(step.bits);
          continue;
        }
        const auto ac = block.ac->find(reader.bits());
        if (!ac.code) return false;
        reader.drop(ac.code + ac.value);
        coefficient += ac.moves;
      }
      if constexpr (kept) writer.copy(BitReader(data_.data(), begin), reader.position() - begin);
      if (coefficient != DCTSIZE2 && coefficient < HuffmanTable::kEnd) return false;
    }
    if (reader.position() > end) return false;
  }
  shared = reader;
  return true;
}

bool UnitCutter::prepare(const jpeg_decompress_struct& header) {
  if (header.progressive_mode || header.arith_code || header.comps_in_scan != header.num_components) return false;
  if (header.Ss != 0 || header.Se != DCTSIZE2 - 1 || header.Ah != 0 || header.Al != 0) return false;
  block_count_ = 0;
  for (int i = 0; i < header.comps_in_scan; i++) {
    const jpeg_component_info& component = *header.cur_comp_info[i];
    const int dc = component.dc_tbl_no, ac = component.ac_tbl_no;
    const int count = component.h_samp_factor * component.v_samp_factor;
    if (dc < 0 || dc >= NUM_HUFF_TBLS || ac < 0 || ac >= NUM_HUFF_TBLS) return false;
    if (header.comps_in_scan == 1 && count != 1) return false;  // such a unit is one block all the same
    if (count < 1 || count > D_MAX_BLOCKS_IN_MCU - block_count_) return false;
    if (!dc_[dc].prepare(header.dc_huff_tbl_ptrs[dc], false)) return false;
    if (!ac_[ac].prepare(header.ac_huff_tbl_ptrs[ac], true)) return false;
    for (int k = 0; k < count; k++) blocks_[block_count_++] = {i, &dc_[dc], &ac_[ac]};
  }
  return true;
}

// The segments before the first scan, but other sizes, and codes for any DC.
bool UnitCutter::copy_header(const jpeg_decompress_struct& header, Bytes photo, const Units& wanted) {
  const auto side = [](int64_t first, int64_t last, int64_t samples, int64_t whole) {
    return static_cast<int>(std::min(last * samples * DCTSIZE, whole) - first * samples * DCTSIZE);
  };
  const int height = side(wanted.top, wanted.bottom, header.max_v_samp_factor, header.image_height);
  const int width = side(wanted.left, wanted.right, header.max_h_samp_factor, header.image_width);
  out_.clear();
  append(out_, {0xff, 0xd8});
  for (size_t at = 2; photo.size() - at >= 4;) {
    const int marker = photo[at + 1];
    const size_t length = 2 + (size_t{photo[at + 2]} << 8 | photo[at + 3]);
    if (photo[at] != 0xff || marker < 0xc0 || (marker >= 0xd0 && marker < 0xda) || marker == 0xff) return false;
    if (length < 4 || length > photo.size() - at) return false;
    const Bytes segment = photo.subspan(at, length);
    at += length;
    if (marker == 0xda) {
      for (int i = 0; i < header.comps_in_scan; i++) {
        append(out_, {0xff, 0xc4, 0, 31, header.cur_comp_info[i]->dc_tbl_no});
        out_.insert(out_.end(), std::begin(kLengths), std::end(kLengths));
        for (int size = 0; size <= kMostSize; size++) append(out_, {size});
      }
      append(out_, {0xff, 0xdd, 0, 4, 0, 0});  // no restart markers
      out_.insert(out_.end(), segment.begin(), segment.end());
      return header.src->next_input_byte == photo.data() + at;
    }
    const bool tells_nothing = (marker > JPEG_APP0 && marker < JPEG_APP0 + 14) || marker == JPEG_COM;
    if (tells_nothing) continue;
    out_.insert(out_.end(), segment.begin(), segment.end());
    if (marker >= 0xc0 && marker <= 0xc2) {
      if (length < 9) return false;
      const int sizes[] = {height >> 8, height & 255, width >> 8, width & 255};
      for (int i = 0; i < 4; i++) out_[out_.size() - length + 5 + i] = static_cast<uint8_t>(sizes[i]);
    }
  }
  return false;
}

// Takes the zeros out that follow each 0xff, and the restart markers.
bool UnitCutter::unpack(Bytes coded) {
  data_.resize(coded.size() + kPadding);
  ends_.clear();
  const uint8_t *from = coded.data(), *const last = from + coded.size();
  uint8_t* to = data_.data();
  while (true) {
    const auto* found = static_cast<const uint8_t*>(std::memchr(from, 0xff, last - from));
    if (!found || last - found < 2) return false;
    to = std::copy(from, found, to);
    from = found + 2;
    if (found[1] == 0) {
      *to++ = 0xff;
      continue;
    }
    ends_.push_back((to - data_.data()) * 8);
    if (found[1] != 0xd0 + (ends_.size() - 1) % 8) break;  // not the restart marker that comes next
  }
  std::fill_n(to, kPadding, uint8_t{0});
  return true;
}

bool UnitCutter::cut(const jpeg_decompress_struct& header, Bytes photo, const Units& wanted) {
  if (!prepare(header) || !copy_header(header, photo, wanted)) return false;
  const int64_t unit_width = int64_t{header.max_h_samp_factor} * DCTSIZE;
  const int64_t columns = (header.image_width + unit_width - 1) / unit_width;
  const int64_t interval = header.restart_interval;
  if (!unpack(Bytes(header.src->next_input_byte, header.src->bytes_in_buffer))) return false;
  BitReader reader(data_.data(), 0);
  BitWriter writer(out_);
  Nowhere nowhere;
  before_.fill(0);
  size_t part = 0;  // from one marker to the next
  int64_t left = interval;
  // Goes over units, and over the markers between them.
  const auto go = [&](int64_t units, auto& to) {
    while (units > 0) {
      if (interval && left == 0) {
        const int64_t end = ends_[part++], rest = end - reader.position();
        if (rest < 0 || rest >= 8 || part == ends_.size()) return false;
        reader = BitReader(data_.data(), end);
        before_.fill(0);
        left = interval;
      }
      const int64_t some = interval ? std::min(units, left) : units;
      if (!pass(reader, to, some, ends_[part])) return false;
      units -= some;
      left -= some;
    }
    return true;
  };
  if (!go(wanted.top * columns, nowhere)) return false;
  written_.fill(0);
  for (int64_t row = wanted.top; row < wanted.bottom; row++) {
    if (!go(wanted.left, nowhere) || !go(wanted.right - wanted.left, writer)) return false;
    if (row + 1 == wanted.bottom) break;
    if (!go(columns - wanted.right, nowhere)) return false;
  }
  writer.finish();
  return true;
}

}  // namespace strobe

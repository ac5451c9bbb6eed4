// Cuts units (MCUs: what is coded together, 16x16 pixels of a usual photo) out of a JPEG without decoding them.
//
// Most of the time for a crop goes into the Huffman codes of what is not wanted. To step over them takes 0.6 of the
// time to decode them: a table gives two codes at once, and no coefficient is put anywhere. The units that are wanted
// make a smaller JPEG, which libjpeg decodes.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <vector>

#include <jpeglib.h>

#include "files.h"
#include "huffman.h"

namespace strobe {

// Rows and columns of units, from 0; without `bottom` and `right`.
struct Units {
  int64_t top, left, bottom, right;
};

class UnitCutter {
 public:
  // Makes a JPEG of the wanted units of a photo, of which libjpeg has just read the header. False where that cannot
  // be: it is progressive, arithmetic-coded or of several scans, or something is not as it should be.
  bool cut(const jpeg_decompress_struct& header, Bytes photo, const Units& wanted);

  Bytes result() const { return out_; }

 private:
  bool prepare(const jpeg_decompress_struct& header);
  bool copy_header(const jpeg_decompress_struct& header, Bytes photo, const Units& wanted);

  struct Block {
    int component;
    const HuffmanTable *dc, *ac;
  };
  bool unpack(Bytes coded);
  template <class Writer>
  bool pass(BitReader& reader, Writer& writer, int64_t units, int64_t end);

  std::array<HuffmanTable, NUM_HUFF_TBLS> dc_, ac_;
  std::array<Block, D_MAX_BLOCKS_IN_MCU> blocks_;
  int block_count_ = 0;
  std::array<int32_t, MAX_COMPS_IN_SCAN> before_, written_;  // DC of each component's last block: of all, of the kept
  std::vector<uint8_t> data_, out_;
  std::vector<int64_t> ends_;  // in data_, the positions of markers, in bits
};

}  // namespace strobe

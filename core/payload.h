// Undecoded payloads: one column of byte strings, whatever messages they are.
#pragma once

#include "columns.h"
#include "decode.h"

namespace rekord {

// Has the interface of Decoder, but refuses nothing: a frame's checksum is all that is
// known about its payload.
class PayloadDecoder {
 public:
  // `skip`: rows are counted, and their payloads are not copied.
  PayloadDecoder(bool skip, std::shared_ptr<Pool> pool)
      : spec_(spec(skip)), builder_(spec_, std::move(pool), 1) {
    start();
  }
  PayloadDecoder(const PayloadDecoder&) = delete;  // the builder holds on to the spec
  PayloadDecoder& operator=(const PayloadDecoder&) = delete;

  void start() {
    rows_ = 0;
    builder_.start();
  }
  RowProblem add(Bytes payload, const BlockRef& slab) {
    const Cell cell{payload.data(), payload.size()};
    if (!spec_.skip) builder_.add_cells(&cell, 1, 1, rows_, slab);
    ++rows_;
    return {};
  }
  RowProblem settle() noexcept { return {}; }
  size_t rows() const noexcept { return rows_; }
  std::vector<size_t> maybe_odd() const { return {}; }
  Column finish() { return builder_.finish(rows_); }
  const SlotSpec& slot() const noexcept { return spec_; }

 private:
  static SlotSpec spec(bool skip) {
    SlotSpec spec;
    spec.kind = Kind::bytes;
    spec.skip = skip;
    return spec;
  }

  SlotSpec spec_;
  ColumnBuilder builder_;
  size_t rows_ = 0;
};

}  // namespace rekord

// Payloads to columns, by a plan.
//
// A record's features come in any order. Where the last record had the same
// order, the next slot is known before it is looked at; where not, a hash of the
// key finds it; and either way one comparison proves the whole header (plan.h).
// Longer values and odd forms are parsed, and the oddest go through the same
// reader as payloads without a schema (example.h), so that all paths agree.
#pragma once

#include "columns.h"
#include "plan.h"

namespace rekord {

// Why a payload is not a row of the plan.
struct RowProblem {
  static constexpr uint32_t kNoSlot = 0xffffffff;

  Problem problem;
  uint32_t slot = kNoSlot;

  explicit operator bool() const noexcept { return static_cast<bool>(problem); }
};

class Decoder {
 public:
  Decoder(std::shared_ptr<const Plan> plan, std::shared_ptr<Pool> pool);

  // Begins a batch.
  void start();
  // Adds the row of one Example, or leaves the batch as it was. The payload has
  // kPadding readable bytes after it; long values keep `slab` alive.
  RowProblem add(Bytes payload, const BlockRef& slab);
  size_t rows() const noexcept { return rows_; }
  std::vector<Column> finish();

 private:
  // These give false where the row is refused, and `problem_` says why.
  bool features(Bytes message);
  // One entry in the usual form with lengths of any size; moves `at` past it.
  bool parse_entry(const std::byte*& at, const std::byte* end);
  // One entry in full generality.
  bool parse_oddly(const std::byte*& at, const std::byte* end);
  bool fill_missing();
  bool refuse(const Problem& problem) noexcept;
  bool refuse(uint32_t slot, const std::byte* at) noexcept;

  // Everything about a slot that the common path touches, side by side.
  struct Lane {
    // The header as it was last time, words and length of the value; 0 words at first.
    std::array<uint64_t, Header::kMostWords> expected{};
    uint64_t tail_mask = 0;
    uint32_t last_word = 0;
    uint32_t header_bytes = 0;
    size_t value_bytes = 0;
    Lane* next = nullptr;  // what came after it last time
    ColumnBuilder* builder = nullptr;
    uint64_t seen = 0;  // the stamp of the row that had it last
    Kind kind = Kind::unset;
    bool skip = false;
    uint32_t slot = 0;

    // Whether the same header stands here again.
    bool repeats(const std::byte* at) const noexcept {
      for (size_t i = 0; i < last_word; ++i)
        if (load_le<uint64_t>(at + 8 * i) != expected[i]) return false;
      return (load_le<uint64_t>(at + 8 * last_word) & tail_mask) == expected[last_word];
    }
  };

  // Notes that this row has the slot. A key that comes again replaces what it had.
  void see(Lane& lane) noexcept {
    if (lane.seen == stamp_) [[unlikely]]
      lane.builder->cut_to(rows_);
    else
      ++present_;
    lane.seen = stamp_;
  }
  bool store(Lane& lane, const std::byte* at, size_t bytes);
  // The lane whose key stands at `at`, its header recognised; or null.
  Lane* find(const std::byte* at, size_t left) noexcept;

  std::shared_ptr<const Plan> plan_;
  std::vector<ColumnBuilder> builders_;
  std::vector<Lane> lanes_;  // by slot, and one for the start of a record
  size_t wanted_ = 0;        // slots that every row must have
  size_t present_ = 0;       // of them, in this row
  uint64_t stamp_ = 0;       // of this row
  size_t rows_ = 0;
  Lane* previous_ = nullptr;
  // Where the order changes from record to record, guessing costs more than it
  // saves: after a row of wrong guesses a number of rows are read without.
  uint32_t wrong_guesses_ = 0;
  uint32_t rows_without_guessing_ = 0;
  RowProblem problem_;
  Bytes payload_;
  BlockRef slab_;
  Scratch scratch_;
};

}  // namespace rekord

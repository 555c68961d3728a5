// Payloads to columns, by a plan.
//
// A record is read in two steps, and many records at a time. First its features
// are found: if the last record had the same order, the next slot is known
// in advance; if not, a hash of the key finds it; and either way one
// comparison proves the whole header (plan.h), or the headers of a whole run of
// features whose lengths are the same in every record. Only the position of each value
// is kept. Then, after some records, the values are moved column by column, so that
// the processor writes to one place at a time.
//
//     records  ──►  cells: 16 rows × slots  ──►  columns
//
// A record in another form, and one that is refused, goes through the
// reader of payloads without a schema (example.h), so the two agree.
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

// What was refused in one record so far. A duplicate key replaces what was
// refused before.
class Refusals {
 public:
  // Of each slot the first, so that they are never more than there are slots.
  void add(const RowProblem& problem) {
    for (const RowProblem& each : problems_)
      if (each.slot == problem.slot) return;
    problems_.push_back(problem);
  }
  void forget(uint32_t slot) {
    std::erase_if(problems_, [slot](const RowProblem& each) { return each.slot == slot; });
  }
  void clear() noexcept { problems_.clear(); }
  RowProblem first() const noexcept { return problems_.empty() ? RowProblem{} : problems_.front(); }

 private:
  std::vector<RowProblem> problems_;
};

class Decoder {
 public:
  Decoder(std::shared_ptr<const Plan> plan, std::shared_ptr<Pool> pool);

  // Begins a batch.
  void start();
  // Adds the row of one Example. The payload has kPadding readable bytes after it
  // and must stay in place until `settle`; long values keep `slab` alive. On a
  // problem the rows before the bad one are in the batch, and none after it.
  RowProblem add(Bytes payload, const BlockRef& slab);
  // Moves the values of all rows so far into their columns.
  RowProblem settle();
  // Rows so far; after a problem, the good ones.
  size_t rows() const noexcept { return rows_ + pending_; }
  // Settled rows that may have a form which TensorFlow reads differently (odd::…), in no
  // order: all that have one, and a few that have not. Survey decides.
  const std::vector<size_t>& maybe_odd() const noexcept { return maybe_odd_; }
  std::vector<Column> finish();

 private:
  static constexpr size_t kPendingRows = 16;

  // Everything about a slot that finding its features touches, kept together.
  struct Lane {
    // The header as it was last time, for a value of `value_bytes`.
    std::array<uint64_t, Header::kMostWords> expected{};
    uint64_t second_mask = 0;  // of the second word, which may be the last
    uint64_t tail_mask = 0;    // of the last word, if there are more than two
    uint32_t last_word = 0;
    uint32_t header_bytes = 0;
    size_t value_bytes = ~size_t{0};
    const Header* header = nullptr;
    uint32_t slot = 0;
    bool wanted = false;   // not skipped
    bool varies = false;   // in length, all the time
    bool changed = false;  // in length, at least once

    // Whether the same header is here again. Headers have at least two words.
    bool repeats(const std::byte* at) const noexcept {
      if (load_le<uint64_t>(at) != expected[0]) return false;
      if ((load_le<uint64_t>(at + 8) & second_mask) != expected[1]) return false;
      if (last_word == 1) return true;
      for (size_t i = 2; i < last_word; ++i)
        if (load_le<uint64_t>(at + 8 * i) != expected[i]) return false;
      return (load_le<uint64_t>(at + 8 * last_word) & tail_mask) == expected[last_word];
    }
    // Whether the header is here, for a value of any length.
    bool matches(const std::byte* at) noexcept {
      // Lengths of ints change all the time; there the guess is not worth a branch.
      if (!varies && repeats(at)) [[likely]]
        return true;
      size_t length = 0;
      if (!header->matches(at, length)) return false;
      changed = true;
      expect(length);
      return true;
    }
    // A header for this length next time: the two change together.
    void expect(size_t length) noexcept {
      value_bytes = length;
      if (!varies) header->expect(length, expected);
    }
  };

  // Consecutive features that have the same lengths in every record.
  struct Run {
    struct Item {
      uint32_t slot;
      uint32_t value_bytes;
      size_t at;  // of the value, from the run's first byte
    };

    size_t place = 0;     // in the record, of the first
    size_t features = 0;  // in it, wanted or not
    size_t bytes = 0;
    std::vector<uint64_t> expected;  // the headers, and zeros for values
    std::vector<uint64_t> mask;
    std::vector<Item> items;  // of the wanted ones: the others are only compared

    // Whether the same headers are here again. Reads up to seven bytes beyond the run.
    bool repeats(const std::byte* at) const noexcept {
      uint64_t differs = 0;
      for (size_t i = 0; i < mask.size(); ++i)
        differs |= (load_le<uint64_t>(at + 8 * i) & mask[i]) ^ expected[i];
      return differs == 0;
    }
  };

  // Looks for runs in the order of the last record.
  void find_runs();
  // Finds the features of a record in the usual form; false if it has another.
  bool find_features(Bytes payload);
  // The lane whose key is at `at`, its header recognised; or null.
  Lane* find_lane(const std::byte* at, size_t left, size_t& value_bytes) noexcept;
  // One entry with lengths of any size; moves `at` past it.
  bool find_entry(const std::byte*& at, const std::byte* end);
  void keep(Lane& lane, Cell cell) noexcept {
    cells_[pending_ * stride_ + lane.slot] = cell;
    again_ |= seen_[lane.slot] == stamp_;
    seen_[lane.slot] = stamp_;
    present_ += lane.wanted;
  }
  // Adds a row in full generality.
  RowProblem add_slow_path(Bytes payload, const BlockRef& slab);
  // Moves the values of some pending rows into their columns: all of them, or none.
  bool move_cells(size_t first, size_t count, const BlockRef& slab);

  std::shared_ptr<const Plan> plan_;
  std::vector<ColumnBuilder> builders_;
  std::vector<Lane> lanes_;     // by slot, and one that matches nothing
  std::vector<Lane*> order_;    // by position in the record: the lane found there last time
  std::vector<Run> runs_;       // of that order, by place
  std::vector<uint64_t> seen_;  // by slot: the stamp of the row that had it last
  std::vector<Cell> cells_;     // of the pending rows
  std::array<Bytes, kPendingRows> payloads_;
  BlockRef slab_;       // that they are in
  size_t stride_;       // cells per row
  size_t wanted_ = 0;   // slots that every row must have
  size_t present_ = 0;  // features of this row that are wanted
  uint64_t stamp_ = 0;  // of this row
  size_t rows_ = 0;     // in the columns
  size_t pending_ = 0;  // rows
  bool again_ = false;  // whether this row has a duplicate key
  std::vector<size_t> maybe_odd_;
  // If the order changes from record to record, guessing costs more than it
  // saves: after a row of wrong guesses a number of rows are read without it.
  uint32_t wrong_guesses_ = 0;
  uint32_t rows_without_guessing_ = 0;
  // Runs are searched after the first row; each time they break, after twice as many rows.
  static constexpr uint32_t kMostPatience = 1 << 20;
  uint32_t rows_before_runs_ = 1;
  uint32_t patience_ = 1;
  bool runs_broke_ = false;  // in this row
  Scratch scratch_;
};

}  // namespace rekord

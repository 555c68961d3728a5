// Values to Example and SequenceExample bytes: one form, whoever writes it.
//
//     Example          0a N entries…
//     SequenceExample  0a N entries…  12 M lists…
//     entry            0a E 0a K key… 12 F T L 0a P values…     (plan.h)
//     list             0a E 0a K key… 12 S ( 0a F T L 0a P values… )…
//
// Entries are in the byte order of their keys, the key before its value, numbers
// in one packed chunk; an empty list has its kind and no chunk (L = 0). That is
// protobuf's deterministic form, and TensorFlow's own parser accepts it.
//
// Lengths precede what they measure. Most are known immediately; for the others
// (N, M, and P of many integers) as much room as last time is reserved, and
// if they need more or less, the bytes after it are moved. Records of one writer are
// similar, so this is rare, and cheaper than measuring everything first.
#pragma once

#include <span>

#include "columns.h"
#include "plan.h"

namespace rekord {

// The values of one slot in one row.
struct SlotValues {
  const void* values = nullptr;  // int64_t, float or Bytes, according to the slot's kind
  size_t count = 0;
  bool present = false;  // false: the key is omitted
};

// The steps of one slot in one row.
struct StepValues {
  const SlotValues* steps = nullptr;  // each is present
  size_t count = 0;
  bool present = false;
};

// The values of some slots of the records that were written, as columns: what a decoder
// would make of these records.
class WrittenColumns {
 public:
  // Of the slots that `plan` does not skip.
  WrittenColumns(std::shared_ptr<const Plan> plan, std::shared_ptr<Pool> pool);

  // One cell per slot of the plan; false if a value does not match its slot.
  bool add(const SlotValues* cells);
  // The columns of all records since the last call.
  std::vector<Column> take();

  const Plan& plan() const noexcept { return *plan_; }

 private:
  void start();

  std::shared_ptr<const Plan> plan_;
  std::vector<ColumnBuilder> builders_;
  size_t rows_ = 0;
};

// The limit of protobuf. A longer record could be written, but never read.
inline constexpr size_t kLargestPayload = 0x7fffffff;

// Writes record after record to the end of a buffer.
class RecordWriter {
 public:
  // `steps` is null for Examples.
  RecordWriter(std::shared_ptr<const Plan> features, std::shared_ptr<const Plan> steps);

  // Appends a record; one cell per slot, in the order of the plans. Returns false, and
  // leaves `out` unchanged, if the payload is larger than kLargestPayload.
  // `located`, if not null, is a slot with one string; it becomes its position in `out`.
  bool add(const SlotValues* cells, const StepValues* steps, bool framed, Growing<std::byte>& out,
           Pool& pool, size_t* located = nullptr);

  bool sequence() const noexcept { return steps_plan_ != nullptr; }
  const Plan& features_plan() const noexcept { return *features_plan_; }
  const Plan& steps_plan() const noexcept { return *steps_plan_; }

 private:
  // Everything about a slot that writing touches, kept together.
  struct Lane {
    // The header for P = 0, and what P is added to; while all lengths fit one byte.
    std::array<uint64_t, Header::kMostWords> base{};
    std::array<uint64_t, Header::kMostWords> step{};
    uint32_t words = 0;
    uint32_t short_bytes = 0;  // of that header
    size_t limit = 0;          // of P, for that header
    size_t guess = 0;          // bytes of the header the last time that P was not known before
    std::string_view key;
    uint32_t slot = 0;
    Kind kind = Kind::unset;
  };

  static std::vector<Lane> lanes_of(const Plan& plan);
  void features(const SlotValues* cells, Growing<std::byte>& out, Pool& pool, size_t* located);
  void feature_lists(const StepValues* cells, Growing<std::byte>& out, Pool& pool);
  void entry(Lane& lane, const SlotValues& cell, Growing<std::byte>& out, Pool& pool);
  void many_ints(Lane& lane, const SlotValues& cell, Growing<std::byte>& out, Pool& pool);
  void many_bytes(const Lane& lane, const SlotValues& cell, Growing<std::byte>& out, Pool& pool);
  void list(const Lane& lane, const StepValues& cells, Growing<std::byte>& out, Pool& pool);

  std::shared_ptr<const Plan> features_plan_;
  std::shared_ptr<const Plan> steps_plan_;
  std::vector<Lane> lanes_;  // in the order of their keys
  std::vector<Lane> step_lanes_;
  size_t features_width_ = 1;  // of N and M, as they were last time
  size_t lists_width_ = 1;
  struct StepSize {
    size_t list;
    size_t packed;
  };
  std::vector<StepSize> sizes_;
};

// A whole column, in any layout. Offsets start anywhere and never decrease.
struct ColumnView {
  const int64_t* ints = nullptr;
  const float* floats = nullptr;
  // Byte strings: one by one, or end to end in `data` with one of the two arrays of
  // ends (the first string is between the first two), or `width` bytes each.
  const Bytes* strings = nullptr;
  const std::byte* data = nullptr;
  size_t width = 0;
  bool padded = false;  // zeros at the end of these `width` bytes are not part of a string
  const int64_t* ends = nullptr;
  const int32_t* short_ends = nullptr;
  const int64_t* offsets = nullptr;  // of rows, in values; null: the slot's count each
  const uint8_t* valid = nullptr;    // null: every row has a value
  bool absent = false;               // no row has one
  bool check_utf8 = false;           // strings are not known to be UTF-8
};

// The column of a feature list: one row per step, and where each record's steps begin.
struct StepsView {
  ColumnView column;
  const int64_t* offsets = nullptr;
  const uint8_t* valid = nullptr;  // by record
  bool absent = false;
};

// Writes rows of columns as records, from `row` on.
class ColumnWriter {
 public:
  ColumnWriter(std::shared_ptr<const Plan> features, std::shared_ptr<const Plan> steps,
               std::shared_ptr<Pool> pool);

  struct Outcome {
    size_t rows = 0;    // how far it came; a problem is that row's
    Problem problem;    // missing, wrong_count, not_utf8, or length (the payload is too large)
    uint32_t slot = 0;  // numbered through: the features', then those of the steps
  };

  // Appends the records of the rows from `begin` to `end`, or fewer: it stops after the
  // one with which `out` reaches `enough` bytes. `ends`, if not null, gets the end of
  // each record in `out`, and `written` its values.
  Outcome write(std::span<const ColumnView> columns, std::span<const StepsView> steps, size_t begin,
                size_t end, size_t enough, bool framed, Growing<std::byte>& out,
                Growing<int64_t>* ends, WrittenColumns* written = nullptr);

  // The first problem of all rows, before anything is written; rows is their number if
  // there is none.
  Outcome check(std::span<const ColumnView> columns, std::span<const StepsView> steps, size_t rows);

  Pool& pool() const noexcept { return *pool_; }

 private:
  // Gathers the cells of one row.
  Outcome gather(std::span<const ColumnView> columns, std::span<const StepsView> steps, size_t row);
  // The default of a slot as a cell.
  struct Fill {
    std::vector<Bytes> strings;
    SlotValues cell;
  };
  static std::vector<Fill> fills_of(const Plan& plan);

  RecordWriter writer_;
  std::shared_ptr<Pool> pool_;
  std::vector<Fill> fills_;
  std::vector<SlotValues> cells_;
  std::vector<StepValues> steps_;
  std::vector<std::vector<Bytes>> strings_;  // of the row, for each slot
  std::vector<std::vector<SlotValues>> step_cells_;
};

}  // namespace rekord

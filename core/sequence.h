// SequenceExamples to columns: a context like an Example's, and lists of steps.
#pragma once

#include "decode.h"

namespace rekord {

// The column of a feature list: one row a step in `column`, and where each
// record's steps begin.
struct StepColumn {
  Column column;
  Growing<int64_t> offsets;  // rows + 1, in steps
  Growing<uint8_t> valid;    // by record; only once a list is missing
};

class SequenceDecoder {
 public:
  SequenceDecoder(std::shared_ptr<const Plan> context, std::shared_ptr<const Plan> steps,
                  std::shared_ptr<Pool> pool);

  void start();
  // Adds the row of one SequenceExample, or leaves the batch as it was. Slots of
  // problems are numbered through: the context's, then those of the steps.
  RowProblem add(Bytes payload, const BlockRef& slab);
  // Rows are in their columns as soon as they are added.
  RowProblem settle() noexcept { return {}; }
  size_t rows() const noexcept { return rows_; }
  // As in Decoder.
  const std::vector<size_t>& maybe_odd() const noexcept { return maybe_odd_; }
  std::vector<Column> finish_context();
  std::vector<StepColumn> finish_steps();

 private:
  friend class Walk<SequenceDecoder>;
  // What the walk calls.
  void feature(std::string_view key, const FeatureView& view);
  void begin_steps(std::string_view key);
  void step(const FeatureView& view);
  void end_steps();

  // Records a problem of the row, and the position of its feature.
  void refuse(Problem problem, uint32_t slot, const FeatureView& view);
  void refuse_unknown(const Plan& plan, std::string_view key);
  void cut_to_rows() noexcept;
  RowProblem finish_row();

  struct Steps {
    ColumnBuilder builder;
    Growing<int64_t> offsets;
    Growing<uint8_t> valid;
    size_t count = 0;  // of steps, in all records
    bool holes = false;
    uint64_t seen = 0;

    // Undoes the steps of the records from the end.
    void cut_to(size_t records) noexcept {
      offsets.cut_to(records + 1);
      count = static_cast<size_t>(offsets.back());
      builder.cut_to(count);
    }
  };

  std::shared_ptr<const Plan> context_plan_;
  std::shared_ptr<const Plan> step_plan_;
  std::shared_ptr<Pool> pool_;
  std::vector<SlotSpec> step_specs_;
  std::vector<ColumnBuilder> context_;
  std::vector<uint64_t> seen_;
  std::vector<uint64_t> met_;  // the same, whether the key had a kind or not
  bool again_ = false;         // whether this record has a key twice
  std::vector<size_t> maybe_odd_;
  std::vector<Steps> steps_;
  uint32_t list_ = Lookup::kNone;  // whose steps are coming
  Refusals refusals_;
  uint64_t stamp_ = 0;
  size_t rows_ = 0;
  Bytes payload_;
  BlockRef slab_;
  Scratch scratch_;
};

}  // namespace rekord

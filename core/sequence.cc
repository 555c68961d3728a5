#include "sequence.h"

namespace rekord {
namespace {

constexpr size_t kFirstRows = 64;

}  // namespace

SequenceDecoder::SequenceDecoder(std::shared_ptr<const Plan> context,
                                 std::shared_ptr<const Plan> steps, std::shared_ptr<Pool> pool)
    : context_plan_(std::move(context)), step_plan_(std::move(steps)), pool_(std::move(pool)) {
  const size_t columns = context_plan_->slots().size() + step_plan_->slots().size();
  for (const SlotSpec& spec : context_plan_->slots()) context_.emplace_back(spec, pool_, columns);
  seen_.assign(context_.size(), 0);
  met_.assign(context_.size(), 0);
  step_specs_.reserve(step_plan_->slots().size());
  for (const SlotSpec& spec : step_plan_->slots()) {
    // Whether a list may be missing is decided a record at a time. A step without a
    // kind is the default, or a step without values where that is allowed.
    SlotSpec step = spec;
    if (step.missing != Missing::fill) step.missing = step.ragged ? Missing::fill : Missing::refuse;
    step_specs_.push_back(std::move(step));
    steps_.push_back({ColumnBuilder(step_specs_.back(), pool_, columns), {}, {}, 0, false, 0});
  }
  start();
}

void SequenceDecoder::start() {
  for (size_t i = 0; i < context_.size(); ++i)
    if (!context_plan_->slots()[i].skip) context_[i].start();
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (step_specs_[i].skip) continue;
    Steps& steps = steps_[i];
    steps.builder.start();
    steps.count = 0;
    steps.offsets.start(*pool_, kFirstRows);
    steps.offsets.push(0);
    steps.valid = {};
    steps.holes = false;
  }
  rows_ = 0;
  maybe_odd_.clear();
}

std::vector<Column> SequenceDecoder::finish_context() {
  std::vector<Column> columns;
  for (ColumnBuilder& builder : context_) columns.push_back(builder.finish(rows_));
  return columns;
}

std::vector<StepColumn> SequenceDecoder::finish_steps() {
  std::vector<StepColumn> columns;
  for (Steps& steps : steps_)
    columns.push_back(
        {steps.builder.finish(steps.count), std::move(steps.offsets), std::move(steps.valid)});
  return columns;
}

void SequenceDecoder::refuse(Problem problem, uint32_t slot, const FeatureView& view) {
  if (!view.lists->empty())
    problem.at = static_cast<uint64_t>(view.lists->front().data() - payload_.data());
  refusals_.add({problem, slot});
}

void SequenceDecoder::refuse_unknown(const Plan& plan, std::string_view key) {
  if (!plan.refuses(key)) return;
  const auto at =
      static_cast<uint64_t>(reinterpret_cast<const std::byte*>(key.data()) - payload_.data());
  refusals_.add({{Fault::unknown_key, at, at, key.size()}});
}

void SequenceDecoder::feature(std::string_view key, const FeatureView& view) {
  const uint32_t slot = context_plan_->lookup().find(key, context_plan_->slots());
  if (slot == Lookup::kNone) refuse_unknown(*context_plan_, key);
  if (slot == Lookup::kNone || context_plan_->slots()[slot].skip) return;
  context_[slot].cut_to(rows_);
  refusals_.forget(slot);
  again_ |= met_[slot] == stamp_;
  met_[slot] = stamp_;
  seen_[slot] = 0;
  if (view.kind == Kind::unset) return;
  if (context_[slot].add_feature(view, rows_, slab_))
    seen_[slot] = stamp_;
  else
    refuse(context_[slot].problem(), slot, view);
}

void SequenceDecoder::begin_steps(std::string_view key) {
  list_ = step_plan_->lookup().find(key, step_plan_->slots());
  if (list_ == Lookup::kNone) refuse_unknown(*step_plan_, key);
  if (list_ == Lookup::kNone || step_specs_[list_].skip) {
    list_ = Lookup::kNone;
    return;
  }
  // A list that comes again replaces what it was.
  steps_[list_].cut_to(rows_);
  refusals_.forget(static_cast<uint32_t>(context_.size()) + list_);
  again_ |= steps_[list_].seen == stamp_;
  steps_[list_].seen = stamp_;
}

void SequenceDecoder::step(const FeatureView& view) {
  if (list_ == Lookup::kNone) return;
  Steps& steps = steps_[list_];
  if (steps.builder.add_feature(view, steps.count, slab_))
    ++steps.count;
  else
    refuse(steps.builder.problem(), static_cast<uint32_t>(context_.size()) + list_, view);
}

void SequenceDecoder::end_steps() {
  if (list_ == Lookup::kNone) return;
  Steps& steps = steps_[list_];
  steps.offsets.reserve(*pool_, 1);
  steps.offsets.push(static_cast<int64_t>(steps.count));
}

RowProblem SequenceDecoder::add(Bytes payload, const BlockRef& slab) {
  payload_ = payload;
  slab_ = slab;
  ++stamp_;
  again_ = false;
  refusals_.clear();
  Walk<SequenceDecoder> walk(payload, *this, scratch_);
  RowProblem problem{walk.sequence()};
  if (!problem) problem = refusals_.first();
  if (!problem) problem = finish_row();
  slab_ = nullptr;
  if (problem) {
    cut_to_rows();
    return problem;
  }
  if (again_ || (walk.oddities() & ~odd::unknown_top) != 0) maybe_odd_.push_back(rows_);
  ++rows_;
  return {};
}

RowProblem SequenceDecoder::finish_row() {
  for (uint32_t slot = 0; slot < context_.size(); ++slot) {
    if (seen_[slot] == stamp_ || context_plan_->slots()[slot].skip) continue;
    if (!context_[slot].add_missing(rows_)) return {context_[slot].problem(), slot};
  }
  for (uint32_t i = 0; i < steps_.size(); ++i) {
    if (step_specs_[i].skip) continue;
    Steps& steps = steps_[i];
    const bool present = steps.seen == stamp_;
    if (!present) {
      const Missing missing = step_plan_->slots()[i].missing;
      if (missing == Missing::refuse)
        return {{Fault::missing, 0, 0, 0}, static_cast<uint32_t>(context_.size()) + i};
      steps.offsets.reserve(*pool_, 1);
      steps.offsets.push(steps.offsets.back());
      if (missing == Missing::hole && !steps.holes) {
        steps.holes = true;
        steps.valid.start(*pool_, std::max<size_t>(kFirstRows, rows_ + 1));
        std::memset(steps.valid.data(), 1, rows_);
        steps.valid.grow_by(rows_);
      }
    }
    if (steps.holes) {
      steps.valid.reserve(*pool_, 1);
      steps.valid.push(present ? 1 : 0);
    }
  }
  return {};
}

void SequenceDecoder::cut_to_rows() noexcept {
  for (ColumnBuilder& builder : context_) builder.cut_to(rows_);
  for (size_t i = 0; i < steps_.size(); ++i) {
    if (step_specs_[i].skip) continue;
    steps_[i].cut_to(rows_);
    if (steps_[i].holes) steps_[i].valid.cut_to(rows_);
  }
}

}  // namespace rekord

#include "decode.h"

#include <algorithm>
#include <utility>

namespace rekord {
namespace {

// A varint of up to five bytes inside [at, end); false where there is none.
bool short_varint(const std::byte*& at, const std::byte* end, size_t& out) noexcept {
  if (at >= end) return false;
  auto byte = std::to_integer<uint64_t>(*at++);
  uint64_t value = byte & 0x7f;
  for (int shift = 7; byte >= 0x80; shift += 7) {
    if (at >= end || shift > 28) return false;
    byte = std::to_integer<uint64_t>(*at++);
    value |= (byte & 0x7f) << shift;
  }
  out = static_cast<size_t>(value);
  return true;
}

// A tag of one byte and the length that follows it, which must not pass `end`.
bool nested(const std::byte*& at, const std::byte* end, uint8_t tag, size_t& length) noexcept {
  if (at >= end || std::to_integer<uint8_t>(*at) != tag) return false;
  ++at;
  return short_varint(at, end, length) && length <= static_cast<size_t>(end - at);
}

}  // namespace

Decoder::Decoder(std::shared_ptr<const Plan> plan, std::shared_ptr<Pool> pool)
    : plan_(std::move(plan)), stride_(plan_->slots().size()) {
  const auto& slots = plan_->slots();
  builders_.reserve(slots.size());
  lanes_.resize(slots.size() + 1);
  cells_.resize(kPendingRows * stride_);
  seen_.resize(slots.size());
  for (uint32_t i = 0; i < slots.size(); ++i) {
    builders_.emplace_back(slots[i], pool, slots.size());
    const Header& header = plan_->headers()[i];
    Lane& lane = lanes_[i];
    lane.header = &header;
    lane.last_word = static_cast<uint32_t>(header.last_word());
    lane.second_mask = lane.last_word == 1 ? header.tail_mask() : ~uint64_t{0};
    lane.tail_mask = header.tail_mask();
    lane.header_bytes = static_cast<uint32_t>(header.size());
    lane.slot = i;
    lane.wanted = !slots[i].skip;
    lane.varies = slots[i].kind == Kind::ints;
    wanted_ += lane.wanted;
  }
  // No header is longer than its words, so that this one never stands anywhere.
  static const Header nothing = [] {
    SlotSpec spec;
    spec.key.assign(kPadding, ' ');
    return Header(spec);
  }();
  lanes_.back().header = &nothing;
  lanes_.back().varies = true;
  start();
}

void Decoder::start() {
  for (size_t i = 0; i < builders_.size(); ++i)
    if (!plan_->slots()[i].skip) builders_[i].start();
  rows_ = 0;
  pending_ = 0;
  maybe_odd_.clear();
}

std::vector<Column> Decoder::finish() {
  std::vector<Column> columns;
  columns.reserve(builders_.size());
  for (ColumnBuilder& builder : builders_) columns.push_back(builder.finish(rows_));
  return columns;
}

RowProblem Decoder::add(Bytes payload, const BlockRef& slab) {
  if (slab != slab_) {
    if (RowProblem problem = settle()) return problem;
    slab_ = slab;
  }
  ++stamp_;
  present_ = 0;
  again_ = false;
  wrong_guesses_ = 0;
  if (!find_features(payload)) {
    if (RowProblem problem = settle()) return problem;
    return add_slow_path(payload, slab);
  }
  // A key that comes twice stands in the count for one that is missing.
  if (again_ || present_ != wanted_)
    for (Lane& lane : lanes_)
      if (lane.wanted && seen_[lane.slot] != stamp_) keep(lane, {});
  if (again_) [[unlikely]]
    maybe_odd_.push_back(rows_ + pending_);
  payloads_[pending_++] = payload;
  if (rows_without_guessing_ > 0)
    --rows_without_guessing_;
  else if (wrong_guesses_ * 4 > wanted_)
    rows_without_guessing_ = 64;
  else if (rows_before_runs_ > 0 && --rows_before_runs_ == 0)
    find_runs();
  return pending_ == kPendingRows ? settle() : RowProblem{};
}

RowProblem Decoder::settle() {
  // Taken at once: where memory runs out on the way, no more rows are put behind these.
  const size_t count = std::exchange(pending_, 0);
  // Let go at the end: a slab that nobody holds is read into again.
  const BlockRef slab = std::exchange(slab_, nullptr);
  if (count == 0 || move_cells(0, count, slab)) return {};
  // One by one, to find the row that is refused; the general reader says why.
  for (size_t row = 0; row < count; ++row) {
    if (move_cells(row, 1, slab)) continue;
    if (RowProblem problem = add_slow_path(payloads_[row], slab)) {
      std::erase_if(maybe_odd_, [this](size_t odd_row) { return odd_row >= rows_; });
      return problem;
    }
  }
  return {};
}

bool Decoder::move_cells(size_t first, size_t count, const BlockRef& slab) {
  const Cell* cells = cells_.data() + first * stride_;
  for (size_t i = 0; i < builders_.size(); ++i) {
    if (!lanes_[i].wanted) continue;
    if (builders_[i].add_cells(cells + i, stride_, count, rows_, slab)) continue;
    for (ColumnBuilder& builder : builders_) builder.cut_to(rows_);
    return false;
  }
  rows_ += count;
  return true;
}

void Decoder::find_runs() {
  constexpr size_t kFewest = 3;  // features that are worth one
  runs_.clear();
  std::vector<std::byte> expected, mask;
  Run run;
  const auto end_run = [&] {
    if (run.features >= kFewest) {
      run.bytes = expected.size();
      expected.resize((run.bytes + 7) / 8 * 8);
      mask.resize(expected.size());
      for (size_t i = 0; i < expected.size(); i += 8) {
        run.expected.push_back(load_le<uint64_t>(expected.data() + i));
        run.mask.push_back(load_le<uint64_t>(mask.data() + i));
      }
      runs_.push_back(std::move(run));
    }
    run = {};
    expected.clear();
    mask.clear();
  };
  for (size_t place = 0; place < order_.size(); ++place) {
    const Lane& lane = *order_[place];
    if (lane.varies || lane.changed) {
      end_run();
      continue;
    }
    if (run.features == 0) run.place = place;
    ++run.features;
    std::array<std::byte, kPadding> header;
    for (size_t i = 0; i <= lane.last_word; ++i) store_le(header.data() + 8 * i, lane.expected[i]);
    expected.insert(expected.end(), header.begin(), header.begin() + lane.header_bytes);
    mask.resize(expected.size(), std::byte{0xff});
    if (lane.wanted)
      run.items.push_back({lane.slot, static_cast<uint32_t>(lane.value_bytes), expected.size()});
    expected.resize(expected.size() + lane.value_bytes);
    mask.resize(expected.size());
  }
  end_run();
}

bool Decoder::find_features(Bytes payload) {
  // One Features message and nothing else, or nothing at all.
  const std::byte* at = payload.data();
  const std::byte* const end = at + payload.size();
  size_t message_bytes = 0;
  if (at == end) return true;
  if (!nested(at, end, 0x0a, message_bytes) || at + message_bytes != end) return false;

  const bool guess = rows_without_guessing_ == 0;
  Cell* const cells = cells_.data() + pending_ * stride_;
  uint64_t* const seen = seen_.data();
  Lane* const nothing = &lanes_.back();
  Lane* const* const order = order_.data();
  const size_t known_places = guess ? order_.size() : 0;
  const Run* run = runs_.data();
  const Run* const last_run = run + (guess ? runs_.size() : 0);
  const uint64_t stamp = stamp_;
  size_t present = 0;
  bool again = false;
  for (size_t place = 0; at < end; ++place) {
    const auto left = static_cast<size_t>(end - at);
    if (run != last_run && place == run->place) {
      if (run->bytes <= left && run->repeats(at)) [[likely]] {
        for (const Run::Item& item : run->items) {
          cells[item.slot] = {at + item.at, item.value_bytes};
          again |= seen[item.slot] == stamp;
          seen[item.slot] = stamp;
        }
        present += run->items.size();
        at += run->bytes;
        place += run->features - 1;
        ++run;
        continue;
      }
      runs_broke_ = true;
      run = last_run;
    }
    Lane* lane = place < known_places ? order[place] : nothing;
    size_t value_bytes = 0;
    if (lane->matches(at)) [[likely]] {
      value_bytes = lane->value_bytes;
    } else {
      lane = find_lane(at, left, value_bytes);
      if (guess) {
        ++wrong_guesses_;
        if (lane != nullptr) lane->expect(value_bytes);
        // A new place may move `order_`: the rest of this row goes without.
        if (lane != nullptr && place < known_places)
          order_[place] = lane;
        else if (lane != nullptr && place == order_.size())
          order_.push_back(lane);
      }
    }
    if (lane == nullptr || lane->header_bytes + value_bytes > left) [[unlikely]] {
      if (!find_entry(at, end)) return false;
      continue;
    }
    cells[lane->slot] = {at + lane->header_bytes, value_bytes};
    again |= seen[lane->slot] == stamp;
    seen[lane->slot] = stamp;
    present += lane->wanted;
    // The entry's own length says the same as the lane's two, but can be loaded before
    // the lane is known: the next entry need not wait for this one.
    at += 2 + std::to_integer<size_t>(at[1]);
  }
  present_ += present;
  again_ |= again;
  if (runs_broke_) [[unlikely]] {
    runs_broke_ = false;
    runs_.clear();
    patience_ = std::min(patience_ * 2, kMostPatience);
    rows_before_runs_ = patience_;
  }
  return true;
}

Decoder::Lane* Decoder::find_lane(const std::byte* at, size_t left, size_t& value_bytes) noexcept {
  const auto key_bytes = std::to_integer<size_t>(at[3]);
  if (left <= 8 || key_bytes >= left - 4) return nullptr;
  const uint32_t slot = plan_->lookup().candidate(at + 4, key_bytes);
  if (slot == Lookup::kNone) return nullptr;
  Lane& lane = lanes_[slot];
  return lane.header->matches(at, value_bytes) ? &lane : nullptr;
}

bool Decoder::find_entry(const std::byte*& at, const std::byte* end) {
  // Every message ends where its parent does; anything else is odd.
  size_t entry_bytes = 0, key_bytes = 0, feature_bytes = 0, list_bytes = 0, value_bytes = 0;
  if (!nested(at, end, 0x0a, entry_bytes)) return false;
  const std::byte* const entry_end = at + entry_bytes;
  if (!nested(at, entry_end, 0x0a, key_bytes)) return false;
  const Bytes key(at, key_bytes);
  at += key_bytes;
  if (!nested(at, entry_end, 0x12, feature_bytes) || at + feature_bytes != entry_end) return false;
  const uint32_t slot = plan_->lookup().find(as_text(key), plan_->slots());
  const std::byte* const feature = at;
  at = entry_end;
  // An empty key is no column's: only the general reader looks at what stands under it.
  if (slot == Lookup::kNone) return key_bytes != 0 && !plan_->refuses(as_text(key)) && is_utf8(key);
  Lane& lane = lanes_[slot];
  if (!lane.wanted) return true;
  if (feature == entry_end) {
    keep(lane, {});  // no kind: as if the key were absent
    return true;
  }
  const std::byte* list = feature;
  const auto kind_tag =
      static_cast<uint8_t>(static_cast<uint8_t>(plan_->slots()[slot].kind) << 3 | 2);
  if (!nested(list, entry_end, kind_tag, list_bytes) || list + list_bytes != entry_end)
    return false;
  const std::byte* value = list;
  if (!nested(value, entry_end, 0x0a, value_bytes)) return false;
  if (value + value_bytes == entry_end) {
    keep(lane, {value, value_bytes});
    return true;
  }
  keep(lane, {list, list_bytes | Cell::kList});
  return plan_->slots()[slot].kind == Kind::bytes;
}

namespace {

// Puts each feature where its slot says.
struct RowSink {
  const Plan& plan;
  std::vector<ColumnBuilder>& builders;
  std::vector<bool> present;
  size_t row;
  const BlockRef& slab;
  Bytes payload;
  Refusals refusals;

  uint64_t offset(const void* at) const noexcept {
    return static_cast<uint64_t>(static_cast<const std::byte*>(at) - payload.data());
  }

  void feature(std::string_view key, const FeatureView& view) {
    const uint32_t slot = plan.lookup().find(key, plan.slots());
    if (slot == Lookup::kNone) {
      if (plan.refuses(key))
        refusals.add({{Fault::unknown_key, offset(key.data()), offset(key.data()), key.size()}});
      return;
    }
    if (plan.slots()[slot].skip) return;
    // A key that comes again replaces what it had, and one without a kind takes it away.
    builders[slot].cut_to(row);
    refusals.forget(slot);
    present[slot] = view.kind != Kind::unset;
    if (!present[slot] || builders[slot].add_feature(view, row, slab)) return;
    RowProblem problem{builders[slot].problem(), slot};
    if (!view.lists->empty()) problem.problem.at = offset(view.lists->front().data());
    refusals.add(problem);
  }
};

}  // namespace

RowProblem Decoder::add_slow_path(Bytes payload, const BlockRef& slab) {
  RowSink sink{*plan_, builders_, std::vector<bool>(builders_.size()), rows_, slab, payload, {}};
  Walk<RowSink> walk(payload, sink, scratch_);
  RowProblem problem{walk.example()};
  if (!problem) problem = sink.refusals.first();
  for (uint32_t slot = 0; slot < builders_.size() && !problem; ++slot)
    if (!sink.present[slot] && lanes_[slot].wanted && !builders_[slot].add_missing(rows_))
      problem = {builders_[slot].problem(), slot};
  if (problem) {
    for (ColumnBuilder& builder : builders_) builder.cut_to(rows_);
    return problem;
  }
  maybe_odd_.push_back(rows_);
  ++rows_;
  return {};
}

}  // namespace rekord

#include "decode.h"

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
    : plan_(std::move(plan)) {
  const auto& slots = plan_->slots();
  builders_.reserve(slots.size());
  for (const SlotSpec& spec : slots) {
    builders_.emplace_back(spec, pool);
    wanted_ += !spec.skip;
  }
  lanes_.resize(slots.size() + 1);
  for (uint32_t i = 0; i < slots.size(); ++i) {
    const Header& header = plan_->headers()[i];
    Lane& lane = lanes_[i];
    lane.tail_mask = header.tail_mask();
    lane.last_word = static_cast<uint32_t>(header.last_word());
    lane.header_bytes = static_cast<uint32_t>(header.size());
    lane.builder = &builders_[i];
    lane.kind = slots[i].kind;
    lane.skip = slots[i].skip;
    lane.slot = i;
    // No header begins with a zero word, so that nothing repeats at first.
    lane.expected[0] = 0;
  }
  for (Lane& lane : lanes_) lane.next = &lanes_.front();
  start();
}

void Decoder::start() {
  for (size_t i = 0; i < builders_.size(); ++i)
    if (!plan_->slots()[i].skip) builders_[i].start();
  rows_ = 0;
}

std::vector<Column> Decoder::finish() {
  std::vector<Column> columns;
  columns.reserve(builders_.size());
  for (ColumnBuilder& builder : builders_) columns.push_back(builder.finish(rows_));
  return columns;
}

bool Decoder::refuse(const Problem& problem) noexcept {
  problem_ = {problem, RowProblem::kNoSlot};
  return false;
}

bool Decoder::refuse(uint32_t slot, const std::byte* at) noexcept {
  problem_ = {builders_[slot].problem(), slot};
  problem_.problem.at = static_cast<uint64_t>(at - payload_.data());
  return false;
}

RowProblem Decoder::add(Bytes payload, const BlockRef& slab) {
  payload_ = payload;
  slab_ = slab;
  ++stamp_;
  present_ = 0;
  previous_ = &lanes_.back();
  wrong_guesses_ = 0;
  bool good = true;
  Reader reader(payload, payload.data());
  Tag tag{};
  Bytes body;
  while (good && !reader.done()) {
    Problem problem = reader.tag(tag);
    if (!problem) problem = tag.raw == 0x0a ? reader.bytes(body) : reader.skip(tag);
    if (problem)
      good = refuse(problem);
    else if (tag.raw == 0x0a)
      good = features(body);
  }
  if (good && present_ != wanted_) good = fill_missing();
  slab_ = nullptr;
  if (!good) {
    for (ColumnBuilder& builder : builders_) builder.cut_to(rows_);
    return problem_;
  }
  ++rows_;
  if (rows_without_guessing_ > 0)
    --rows_without_guessing_;
  else if (wrong_guesses_ * 4 > wanted_)
    rows_without_guessing_ = 64;
  return {};
}

[[gnu::always_inline]] inline bool Decoder::store(Lane& lane, const std::byte* at, size_t bytes) {
  if (lane.skip) return true;
  see(lane);
  bool good = false;
  if (lane.kind == Kind::bytes)
    good = lane.builder->add_one_bytes(at, bytes, slab_);
  else if (lane.kind == Kind::ints)
    good = lane.builder->add_packed_ints(at, bytes);
  else
    good = lane.builder->add_packed_floats(at, bytes);
  return good || refuse(lane.slot, at);
}

Decoder::Lane* Decoder::find(const std::byte* at, size_t left) noexcept {
  const auto key_bytes = std::to_integer<size_t>(at[3]);
  if (left <= 8 || key_bytes >= left - 4) return nullptr;
  const uint32_t slot = plan_->lookup().candidate(at + 4, key_bytes);
  if (slot == Lookup::kNone) return nullptr;
  Lane& lane = lanes_[slot];
  if (lane.repeats(at)) return &lane;
  const Header& header = plan_->headers()[slot];
  if (!header.matches(at, lane.value_bytes)) return nullptr;
  header.expect(lane.value_bytes, lane.expected);
  return &lane;
}

bool Decoder::features(Bytes message) {
  const std::byte* at = message.data();
  const std::byte* const end = at + message.size();
  const bool guess = rows_without_guessing_ == 0;
  // A local, because every byte written to a column might change a member, as far
  // as the compiler can tell.
  Lane* previous = previous_;
  while (at < end) {
    const auto left = static_cast<size_t>(end - at);
    Lane* lane = previous->next;
    if (!guess || !lane->repeats(at)) {
      lane = find(at, left);
      if (lane != previous->next) {
        ++wrong_guesses_;
        if (lane != nullptr) previous->next = lane;
      }
    }
    if (lane != nullptr && lane->header_bytes + lane->value_bytes <= left) [[likely]] {
      const std::byte* value = at + lane->header_bytes;
      at = value + lane->value_bytes;
      if (!store(*lane, value, lane->value_bytes)) [[unlikely]]
        return false;
      previous = lane;
    } else {
      previous_ = previous;
      if (!parse_entry(at, end)) return false;
      previous = previous_;
    }
  }
  previous_ = previous;
  return true;
}

bool Decoder::parse_entry(const std::byte*& at, const std::byte* end) {
  // Every message ends where its parent does. Anything else is odd, and so is an
  // empty list of numbers.
  const std::byte* p = at;
  size_t entry_bytes = 0, key_bytes = 0, feature_bytes = 0, list_bytes = 0, value_bytes = 0;
  if (!nested(p, end, 0x0a, entry_bytes)) return parse_oddly(at, end);
  const std::byte* const entry_end = p + entry_bytes;
  if (!nested(p, entry_end, 0x0a, key_bytes)) return parse_oddly(at, end);
  const Bytes key(p, key_bytes);
  p += key_bytes;
  if (!nested(p, entry_end, 0x12, feature_bytes) || p + feature_bytes != entry_end)
    return parse_oddly(at, end);
  const uint32_t slot = plan_->lookup().find(as_text(key), plan_->slots());
  if (slot == Lookup::kNone || plan_->slots()[slot].skip) {
    if (slot == Lookup::kNone && (plan_->strict() || !is_utf8(key))) return parse_oddly(at, end);
    at = entry_end;
    return true;
  }
  const Kind kind = plan_->slots()[slot].kind;
  const auto kind_tag = static_cast<uint8_t>(static_cast<uint8_t>(kind) << 3 | 2);
  if (!nested(p, entry_end, kind_tag, list_bytes) || p + list_bytes != entry_end)
    return parse_oddly(at, end);
  const std::byte* value = p;
  if (!nested(value, entry_end, 0x0a, value_bytes)) return parse_oddly(at, end);
  if (value + value_bytes == entry_end) {
    if (value_bytes == 0 && kind != Kind::bytes) return parse_oddly(at, end);
    if (!store(lanes_[slot], value, value_bytes)) return false;
  } else {
    if (kind != Kind::bytes) return parse_oddly(at, end);
    see(lanes_[slot]);
    if (!builders_[slot].add_bytes_list({p, list_bytes}, slab_)) return refuse(slot, p);
  }
  previous_->next = &lanes_[slot];
  previous_ = &lanes_[slot];
  at = entry_end;
  return true;
}

bool Decoder::parse_oddly(const std::byte*& at, const std::byte* end) {
  Reader reader({at, end}, payload_.data(), 1);
  Tag tag{};
  Bytes bytes;
  const std::byte* const begin = at;
  if (Problem problem = reader.tag(tag)) return refuse(problem);
  if (tag.raw != 0x0a) {
    if (Problem problem = reader.skip(tag)) return refuse(problem);
    at = reader.rest().data();
    return true;
  }
  if (Problem problem = reader.bytes(bytes)) return refuse(problem);
  at = reader.rest().data();
  Entry entry;
  if (Problem problem = read_entry(bytes, payload_.data(), entry, scratch_.values))
    return refuse(problem);
  FeatureView feature;
  if (Problem problem = read_feature(scratch_.values, payload_.data(), 3, scratch_, feature))
    return refuse(problem);
  if (!entry.known) return true;
  const uint32_t slot = plan_->lookup().find(entry.key, plan_->slots());
  if (slot == Lookup::kNone) {
    if (!plan_->strict()) return true;
    const auto key = reinterpret_cast<const std::byte*>(entry.key.data());
    return refuse({Fault::unknown_key, static_cast<uint64_t>(begin - payload_.data()),
                   static_cast<uint64_t>(key - payload_.data()), entry.key.size()});
  }
  if (plan_->slots()[slot].skip) return true;
  see(lanes_[slot]);
  if (feature.kind == Kind::unset) {
    // Like a key that is absent: what the row had for it before counts no more.
    lanes_[slot].seen = 0;
    --present_;
    return true;
  }
  return builders_[slot].add_feature(feature, rows_, slab_) || refuse(slot, begin);
}

bool Decoder::fill_missing() {
  for (uint32_t slot = 0; slot < builders_.size(); ++slot) {
    if (lanes_[slot].seen == stamp_ || plan_->slots()[slot].skip) continue;
    if (!builders_[slot].add_missing(rows_)) return refuse(slot, payload_.data());
  }
  return true;
}

}  // namespace rekord

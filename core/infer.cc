#include "infer.h"

#include <algorithm>
#include <cmath>

namespace rekord {
namespace {

bool begins_with(Bytes value, std::string_view magic) noexcept {
  return as_text(value).starts_with(magic);
}

}  // namespace

void Values::merge(const Values& later) noexcept {
  for (size_t kind = 0; kind < kinds.size(); ++kind) {
    kinds[kind].features += later.kinds[kind].features;
    kinds[kind].values.add(later.kinds[kind].values);
  }
  if (first == Kind::unset) first = later.first;
  ints.add(later.ints);
  floats.add(later.floats);
  finite += later.finite;
  nan += later.nan;
  infinite += later.infinite;
  strings += later.strings;
  string_bytes.add(later.string_bytes);
  utf8 = utf8 && later.utf8;
  jpeg = jpeg && later.jpeg;
  png = png && later.png;
}

Problem Inference::add(Bytes payload, bool sequence) {
  ++stamp_;
  features_now_.clear();
  lists_now_.clear();
  list_ = nullptr;
  Walk<Inference> walk(payload, *this, scratch_);
  const Problem problem = sequence ? walk.sequence() : walk.example();
  if (problem) return problem;
  for (Key* key : features_now_) commit(*key, false);
  for (Key* key : lists_now_) commit(*key, true);
  ++records_;
  return {};
}

// The key, with nothing noted of this payload; null where there is no room for it.
Inference::Key* Inference::begin(Keys& keys, std::string_view name) {
  auto found = keys.find(name);
  if (found == keys.end()) {
    if (context_.size() + steps_.size() >= most_keys_ ||
        name.size() > most_key_bytes_ - key_bytes_) {
      overflowed_ = true;
      return nullptr;
    }
    key_bytes_ += name.size();
    found = keys.emplace(name, Key{}).first;
  }
  Key& key = found->second;
  key.now = {};
  key.steps = 0;
  if (key.stamp != stamp_) {
    key.stamp = stamp_;
    (&keys == &context_ ? features_now_ : lists_now_).push_back(&key);
  }
  return &key;
}

void Inference::feature(std::string_view name, const FeatureView& view) {
  if (Key* key = begin(context_, name)) observe(view, *key, key->now);
}

void Inference::begin_steps(std::string_view name) { list_ = begin(steps_, name); }

void Inference::step(const FeatureView& view) {
  if (list_ == nullptr) return;
  ++list_->steps;
  observe(view, *list_, list_->now);
}

void Inference::observe(const FeatureView& view, const Key& key, Values& out) {
  KindCount& kind = out.kinds[static_cast<size_t>(view.kind)];
  ++kind.features;
  kind.values.add(view.count);
  if (view.kind == Kind::unset) return;
  if (out.first == Kind::unset) out.first = view.kind;
  if (view.kind != Kind::bytes) return observe_numbers(view, out);
  out.strings += view.count;
  for_each_bytes(view, [&](Bytes value) {
    out.string_bytes.add(value.size());
    // Every byte has to be read for this: not once the answer is known.
    out.utf8 = out.utf8 && key.facts.values.utf8 && is_utf8(value);
    out.jpeg = out.jpeg && begins_with(value, "\xff\xd8\xff");
    out.png = out.png && begins_with(value, "\x89PNG\r\n\x1a\n");
  });
}

void Inference::observe_numbers(const FeatureView& view, Values& out) {
  // Bounded by the payload: a packed value has a byte at least.
  if (view.kind == Kind::ints) {
    ints_.resize(std::max(ints_.size(), view.count));
    const size_t count = copy_ints(view, {ints_.data(), view.count});
    for (size_t i = 0; i < count; ++i) out.ints.add(ints_[i]);
    return;
  }
  floats_.resize(std::max(floats_.size(), view.count));
  const size_t count = copy_floats(view, {floats_.data(), view.count});
  for (size_t i = 0; i < count; ++i) {
    const float value = floats_[i];
    if (std::isfinite(value)) {
      ++out.finite;
      out.floats.add(value);
    } else if (std::isnan(value)) {
      ++out.nan;
    } else {
      ++out.infinite;
    }
  }
}

void Inference::commit(Key& key, bool is_list) noexcept {
  KeyFacts& facts = key.facts;
  ++facts.records;
  if (is_list) facts.steps.add(key.steps);
  facts.values.merge(key.now);
  if (facts.other != Kind::unset) return;
  for (const Kind kind : {Kind::bytes, Kind::floats, Kind::ints}) {
    if (kind == facts.values.first || key.now.kinds[static_cast<size_t>(kind)].features == 0)
      continue;
    facts.other = kind;
    facts.other_record = records_;
    return;
  }
}

}  // namespace rekord

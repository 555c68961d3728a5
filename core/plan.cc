#include "plan.h"

#include <algorithm>
#include <bit>

namespace rekord {

Header::Header(const SlotSpec& spec) noexcept
    : bytes_(static_cast<uint32_t>(spec.key.size() + 10)), kind_(spec.kind), skip_(spec.skip) {
  const size_t key = spec.key.size();
  // The words must fit; E = K + P + 8 then has room below 128 too.
  if (key > kPadding - 10) {
    bytes_ = 8;
    return;
  }
  limit_ = static_cast<uint8_t>(128 - (key + 8));
  last_ = static_cast<uint16_t>((bytes_ - 1) / 8);
  std::array<std::byte, kPadding> base{};
  std::array<std::byte, kPadding> lengths{};
  const auto put = [&](size_t at, size_t value) { base[at] = static_cast<std::byte>(value); };
  const auto put_length = [&](size_t at, size_t without) {
    put(at, without);
    lengths[at] = std::byte{1};
  };
  put(0, 0x0a);
  put_length(1, key + 8);
  put(2, 0x0a);
  put(3, key);
  std::memcpy(base.data() + 4, spec.key.data(), key);
  put(4 + key, 0x12);
  put_length(5 + key, 4);
  put(6 + key, static_cast<size_t>(spec.kind) << 3 | 2);
  put_length(7 + key, 2);
  put(8 + key, 0x0a);
  put_length(9 + key, 0);
  for (size_t i = 0; i <= last_; ++i) {
    base_[i] = load_le<uint64_t>(base.data() + 8 * i);
    lengths_[i] = load_le<uint64_t>(lengths.data() + 8 * i);
  }
  const auto first_bytes = [](size_t count) {
    return count >= 8 ? ~uint64_t{0} : (uint64_t{1} << (8 * count)) - 1;
  };
  tail_mask_ = first_bytes(bytes_ - 8 * last_);
  start_ = load_le<uint32_t>(base.data());
  key_mask_ = first_bytes(key);
  key_last_at_ = static_cast<uint32_t>(key >= 8 ? 4 + key - 8 : 4);
  key_first_ = load_le<uint64_t>(base.data() + 4) & key_mask_;
  key_last_ = load_le<uint64_t>(base.data() + key_last_at_) & key_mask_;
  list_ = load_le<uint64_t>(base.data() + bytes_ - 8) >> 16;
  has_middle_ = key > 16;
}

bool Header::middle_matches(const std::byte* at) const noexcept {
  // The words that hold nothing but the key, up to its last eight bytes.
  for (size_t i = 1; 8 * i < key_last_at_; ++i)
    if (load_le<uint64_t>(at + 8 * i) != base_[i]) return false;
  return true;
}

uint64_t Lookup::mix(std::string_view key) noexcept {
  std::array<std::byte, 8> start{};
  const auto* bytes = reinterpret_cast<const std::byte*>(key.data());
  if (key.size() < start.size()) {
    if (!key.empty()) std::memcpy(start.data(), bytes, key.size());
    bytes = start.data();
  }
  return mix(bytes, key.size());
}

void Lookup::build(const std::vector<SlotSpec>& slots) {
  std::vector<uint64_t> mixed;
  mixed.reserve(slots.size());
  for (const SlotSpec& slot : slots) mixed.push_back(mix(slot.key));
  std::vector<uint64_t> sorted = mixed;
  std::sort(sorted.begin(), sorted.end());
  // Keys that agree in length, first and last eight bytes are the same to any seed.
  const bool alike = std::adjacent_find(sorted.begin(), sorted.end()) != sorted.end();

  // Four places a slot at first, and more seeds before more places: the table
  // should stay small enough for the first cache.
  int bits = std::max(2, static_cast<int>(std::bit_width(slots.size() * 4)));
  uint64_t seed = 0x9e3779b97f4a7c15u;
  const auto lay_out = [&](bool probe) {
    table_.assign(size_t{1} << bits, kNone);
    seed_ = seed | 1;
    shift_ = 64 - bits;
    return place(mixed, probe);
  };
  for (int attempt = 0; attempt < 2048 && !alike; ++attempt) {
    if (attempt % 256 == 255 && bits < 16) ++bits;
    if (lay_out(false)) return;
    seed = seed * 6364136223846793005u + 1442695040888963407u;
  }
  lay_out(true);
}

bool Lookup::place(const std::vector<uint64_t>& mixed, bool probe) {
  const size_t mask = table_.size() - 1;
  for (uint32_t i = 0; i < mixed.size(); ++i) {
    size_t at = static_cast<size_t>(mixed[i] * seed_ >> shift_);
    while (table_[at] != kNone) {
      if (!probe) return false;
      at = (at + 1) & mask;
    }
    table_[at] = i;
  }
  return true;
}

uint32_t Lookup::find(std::string_view key, const std::vector<SlotSpec>& slots) const noexcept {
  const size_t mask = table_.size() - 1;
  size_t at = static_cast<size_t>(mix(key) * seed_ >> shift_);
  while (table_[at] != kNone && slots[table_[at]].key != key) at = (at + 1) & mask;
  return table_[at];
}

Plan::Plan(std::vector<SlotSpec> specs, bool strict) : slots_(std::move(specs)), strict_(strict) {
  headers_.reserve(slots_.size());
  for (const SlotSpec& spec : slots_) headers_.emplace_back(spec);
  lookup_.build(slots_);
}

}  // namespace rekord

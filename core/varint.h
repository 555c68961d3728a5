// Runs of packed varints, decoded a word at a time.
#pragma once

#include <bit>
#include <span>

#include "bytes.h"

namespace rekord {

inline constexpr uint64_t kTopBits = 0x8080808080808080u;

// The 7-bit groups of up to eight varint bytes, joined. Continuation bits and
// bytes beyond the varint must already be masked off, or be top bits.
inline uint64_t join_groups(uint64_t x) noexcept {
  x &= 0x7f7f7f7f7f7f7f7fu;
  x = ((x & 0x7f007f007f007f00u) >> 1) | (x & 0x007f007f007f007fu);
  x = ((x & 0x3fff00003fff0000u) >> 2) | (x & 0x00003fff00003fffu);
  return ((x & 0x0fffffff00000000u) >> 4) | (x & 0x0fffffffu);
}

// One varint of exactly `length` bytes (1 to 10) at `at`; false if it is not one.
// Reads eight bytes, so `at` needs padding after it.
inline bool decode_varint(const std::byte* at, size_t length, int64_t& out) noexcept {
  uint64_t word = load_le<uint64_t>(at);
  if (length <= 8) [[likely]] {
    if (length == 0) return false;
    const uint64_t mask = ~uint64_t{0} >> (64 - 8 * length);
    // The first byte without a continuation bit must be the last one.
    const uint64_t ends = ~word & kTopBits;
    if ((ends & mask) != uint64_t{0x80} << (8 * (length - 1))) return false;
    out = static_cast<int64_t>(join_groups(word & mask));
    return true;
  }
  if (length > 10 || (~word & kTopBits) != 0) return false;
  uint64_t value = join_groups(word);
  const auto ninth = std::to_integer<uint64_t>(at[8]);
  value |= (ninth & 0x7f) << 56;
  if (length == 9) {
    if (ninth >= 0x80) return false;
  } else {
    const auto tenth = std::to_integer<uint64_t>(at[9]);
    if (ninth < 0x80 || tenth >= 0x80) return false;
    value |= tenth << 63;
  }
  out = static_cast<int64_t>(value);
  return true;
}

// The number of varints that end in these bytes.
inline size_t count_varints(const std::byte* at, size_t bytes) noexcept {
  size_t count = 0;
  const std::byte* end = at + bytes;
  for (; end - at >= 8; at += 8)
    count += static_cast<size_t>(std::popcount(~load_le<uint64_t>(at) & kTopBits));
  for (; at != end; ++at) count += std::to_integer<uint8_t>(*at) < 0x80;
  return count;
}

inline constexpr size_t kBadVarint = ~size_t{0};

// One way to decode all varints of a packed chunk into `out`, which has room for one
// value per byte; returns their number, or kBadVarint. Reads up to eight bytes past
// the end, so the chunk needs padding after it.
struct VarintImplementation {
  const char* name;
  size_t (*decode)(const std::byte* at, size_t bytes, int64_t* out) noexcept;

  // The fastest; with REKORD_PORTABLE (portable.h) the portable one.
  static const VarintImplementation& best() noexcept;
};

// Every implementation that this CPU can run, the portable one first, the best last.
std::span<const VarintImplementation> varint_implementations() noexcept;

// By the best one.
size_t decode_varints(const std::byte* at, size_t bytes, int64_t* out) noexcept;

}  // namespace rekord

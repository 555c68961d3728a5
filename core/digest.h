// A fingerprint of the content of rows, to find rows with the same content.
//
// 128 bits, so that no two of a hundred billion rows collide by chance, and as fast
// as memory, since every byte of a dataset goes through it. It does not protect
// against deliberate collisions.
//
//     row = mix(… mix(mix(0, column 1), column 2) …)      a missing column is skipped
//
// Here in the header because most values are a few bytes: a call would cost more
// than the digest.
#pragma once

#include "bytes.h"

namespace rekord {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
};

namespace digests {

// The fractions of the square roots of 2, 3, 5 and 7: numbers without a pattern.
inline constexpr uint64_t kFirst = 0x6a09e667f3bcc909;
inline constexpr uint64_t kSecond = 0xbb67ae8584caa73b;
inline constexpr uint64_t kThird = 0x3c6ef372fe94f82b;
inline constexpr uint64_t kFourth = 0xa54ff53a5f1d36f1;

__extension__ using Wide = unsigned __int128;

// A product folded to its size. The factors are mixed in again: a factor of zero would
// otherwise discard the other one.
inline uint64_t fold(uint64_t a, uint64_t b) noexcept {
  const Wide product = Wide{a} * b;
  return a ^ b ^ static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Appends two words to what has been digested.
inline void take(Digest& state, uint64_t first, uint64_t second) noexcept {
  state.low = fold(state.low ^ first ^ kFirst, second ^ kSecond);
  state.high = fold(state.high ^ second ^ kThird, first ^ kFourth);
}

// Of at most 16 bytes the first eight and the last eight, which may overlap. Together with
// the length they are unique, and no byte is copied one by one.
inline uint64_t first_word(const std::byte* at, size_t size) noexcept {
  if (size >= 8) return load_le<uint64_t>(at);
  if (size >= 4) return load_le<uint32_t>(at);
  if (size == 0) return 0;
  return std::to_integer<uint64_t>(at[0]) | std::to_integer<uint64_t>(at[size / 2]) << 8;
}

inline uint64_t last_word(const std::byte* at, size_t size) noexcept {
  if (size >= 8) return load_le<uint64_t>(at + size - 8);
  if (size >= 4) return load_le<uint32_t>(at + size - 4);
  return size == 0 ? 0 : std::to_integer<uint64_t>(at[size - 1]);
}

// Of more than 16 bytes.
Digest of_long(Bytes bytes, uint64_t seed) noexcept;

}  // namespace digests

// Of one number. Another seed is another kind of value.
inline Digest digest(uint64_t number, uint64_t seed) noexcept { return {number, seed}; }

inline Digest digest(Bytes bytes, uint64_t seed) noexcept {
  if (bytes.size() > 16) return digests::of_long(bytes, seed);
  return {digests::first_word(bytes.data(), bytes.size()) ^ seed,
          digests::last_word(bytes.data(), bytes.size()) + bytes.size() * digests::kFourth};
}

// Appends another digest to that of a row. The order matters. Only this
// scatters the bits: the digest of a short value is little more than the value.
inline Digest mix(Digest row, Digest next) noexcept {
  digests::take(row, next.low, next.high);
  return row;
}

}  // namespace rekord

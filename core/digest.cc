#include "digest.h"

namespace rekord {
namespace {

// Odd numbers with as many ones as zeros: the fractions of the square roots of 2, 3, 5, 7.
constexpr uint64_t kFirst = 0x6a09e667f3bcc909;
constexpr uint64_t kSecond = 0xbb67ae8584caa73b;
constexpr uint64_t kThird = 0x3c6ef372fe94f82b;
constexpr uint64_t kFourth = 0xa54ff53a5f1d36f1;

__extension__ using Wide = unsigned __int128;

// A product folded to its size. The factors come back in: a factor of zero would
// otherwise forget the other one.
uint64_t fold(uint64_t a, uint64_t b) noexcept {
  const Wide product = Wide{a} * b;
  return a ^ b ^ static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

void take(Digest& state, uint64_t first, uint64_t second) noexcept {
  state.low = fold(state.low ^ first ^ kFirst, second ^ kSecond);
  state.high = fold(state.high ^ second ^ kThird, first ^ kFourth);
}

void take(Digest& state, const std::byte* at) noexcept {
  take(state, load_le<uint64_t>(at), load_le<uint64_t>(at + 8));
}

// The words of at most 15 bytes: the first eight and the last eight, which may overlap.
// Together with the length they say it all, and no byte is copied one by one.
uint64_t first_word(const std::byte* at, size_t size) noexcept {
  if (size >= 8) return load_le<uint64_t>(at);
  if (size >= 4) return load_le<uint32_t>(at);
  return std::to_integer<uint64_t>(at[0]) | std::to_integer<uint64_t>(at[size / 2]) << 8;
}

uint64_t last_word(const std::byte* at, size_t size) noexcept {
  if (size >= 8) return load_le<uint64_t>(at + size - 8);
  if (size >= 4) return load_le<uint32_t>(at + size - 4);
  return std::to_integer<uint64_t>(at[size - 1]);
}

}  // namespace

Digest digest(Bytes bytes, uint64_t seed) noexcept {
  Digest state{seed ^ kThird, seed ^ kFirst};
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  if (left >= 128) {
    // Four chains side by side: one alone waits for its multiplications.
    Digest second{seed, kFirst}, third{seed, kSecond}, fourth{seed, kThird};
    for (; left >= 64; at += 64, left -= 64) {
      take(state, at);
      take(second, at + 16);
      take(third, at + 32);
      take(fourth, at + 48);
    }
    state = mix(mix(mix(state, second), third), fourth);
  }
  for (; left >= 16; at += 16, left -= 16) take(state, at);
  if (left != 0) take(state, first_word(at, left), last_word(at, left));
  take(state, bytes.size(), seed);
  return state;
}

Digest mix(const Digest& row, const Digest& next) noexcept {
  Digest mixed = row;
  take(mixed, next.low, next.high);
  return mixed;
}

}  // namespace rekord

#include "digest.h"

namespace rekord::digests {
namespace {

void take_at(Digest& state, const std::byte* at) noexcept {
  take(state, load_le<uint64_t>(at), load_le<uint64_t>(at + 8));
}

}  // namespace

Digest of_long(Bytes bytes, uint64_t seed) noexcept {
  Digest state{seed ^ kThird, seed ^ kFirst};
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  if (left >= 128) {
    // Four chains side by side: one alone waits for its multiplications.
    Digest second{seed, kFirst}, third{seed, kSecond}, fourth{seed, kThird};
    for (; left >= 64; at += 64, left -= 64) {
      take_at(state, at);
      take_at(second, at + 16);
      take_at(third, at + 32);
      take_at(fourth, at + 48);
    }
    state = mix(mix(mix(state, second), third), fourth);
  }
  for (; left >= 16; at += 16, left -= 16) take_at(state, at);
  // The last 16 bytes, some of which may have been taken already.
  take_at(state, bytes.data() + bytes.size() - 16);
  take(state, bytes.size(), seed);
  return state;
}

}  // namespace rekord::digests

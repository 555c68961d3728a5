// A fingerprint of what rows hold, to tell which rows hold the same.
//
// 128 bits, so that chance makes no two of a hundred billion rows alike, and as fast
// as memory, since every byte of a dataset goes through it. It is no protection
// against someone who makes two contents meet on purpose.
//
//     row = mix(… mix(mix(0, column 1), column 2) …)      a column that a row lacks is left out
#pragma once

#include "bytes.h"

namespace rekord {

struct Digest {
  uint64_t low = 0;
  uint64_t high = 0;
};

Digest digest(Bytes bytes, uint64_t seed) noexcept;

// Puts another digest behind what a row has so far. The order counts.
Digest mix(const Digest& row, const Digest& next) noexcept;

}  // namespace rekord

// Pieces from many places, put one behind another.
//
// Records in a random order lie anywhere in files far larger than the caches: each
// copy would wait for memory by itself. So the first bytes of the pieces to come are
// asked for while the ones before them are copied.
#pragma once

#include <span>

#include "bytes.h"

namespace rekord {

// Copies the pieces to `out`, which has room for all of them.
void gather(std::span<const Bytes> pieces, std::byte* out) noexcept;

}  // namespace rekord

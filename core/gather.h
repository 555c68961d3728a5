// Pieces from many places, put one behind another.
//
// Records in a random order lie anywhere in files far larger than the caches: each
// copy would wait for memory by itself. So the first bytes of the pieces to come are
// asked for while the ones before them are copied.
#pragma once

#include <span>

#include "bytes.h"

namespace rekord {

// Copies the pieces to `out`, which has room for all of them. Gives their number, or that
// of the first that cannot be read. Pieces of files that are mapped lie in `mappings`; the
// caller has installed the SIGBUS guard if there are any.
size_t gather(std::span<const Bytes> pieces, std::span<const Bytes> mappings,
              std::byte* out) noexcept;

}  // namespace rekord

// Concatenates pieces from many locations.
//
// Records in a random order are anywhere in files far larger than the caches: each
// copy would wait for memory by itself. So the first bytes of the next pieces are
// prefetched while earlier ones are copied.
#pragma once

#include <span>

#include "bytes.h"

namespace rekord {

// Copies the pieces to `out`, which has room for all of them. Returns their number, or that
// of the first that cannot be read. Pieces of mapped files are in `mappings`; the
// caller has installed the SIGBUS guard if there are any.
size_t gather(std::span<const Bytes> pieces, std::span<const Bytes> mappings,
              std::byte* out) noexcept;

}  // namespace rekord

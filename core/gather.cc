#include "gather.h"

#include <algorithm>

#include "sigbus_guard.h"

namespace rekord {
namespace {

constexpr size_t kAhead = 8;
constexpr size_t kLine = 64;
constexpr size_t kMostLines = 16;  // the processor itself sees where longer pieces go on

// Never a fault, whatever has become of the bytes.
void ask_for(Bytes piece) noexcept {
  const size_t lines = std::min(kMostLines, (piece.size() + kLine - 1) / kLine);
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(piece.data() + i * kLine);
}

}  // namespace

size_t gather(std::span<const Bytes> pieces, std::span<const Bytes> mappings,
              std::byte* out) noexcept {
  GuardedReads reads(mappings);
  for (size_t i = 0; i < std::min(kAhead, pieces.size()); ++i) ask_for(pieces[i]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i + kAhead < pieces.size()) ask_for(pieces[i + kAhead]);
    if (!reads.copy(pieces[i], out)) return i;
    out += pieces[i].size();
  }
  return pieces.size();
}

}  // namespace rekord

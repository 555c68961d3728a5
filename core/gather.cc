#include "gather.h"

#include <algorithm>

namespace rekord {
namespace {

constexpr size_t kAhead = 8;
constexpr size_t kLine = 64;
constexpr size_t kMostLines = 16;  // the processor itself sees where longer pieces go on

void ask_for(Bytes piece) noexcept {
  const size_t lines = std::min(kMostLines, (piece.size() + kLine - 1) / kLine);
  for (size_t i = 0; i < lines; ++i) __builtin_prefetch(piece.data() + i * kLine);
}

}  // namespace

void gather(std::span<const Bytes> pieces, std::byte* out) noexcept {
  for (size_t i = 0; i < std::min(kAhead, pieces.size()); ++i) ask_for(pieces[i]);
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (i + kAhead < pieces.size()) ask_for(pieces[i + kAhead]);
    if (!pieces[i].empty()) std::memcpy(out, pieces[i].data(), pieces[i].size());
    out += pieces[i].size();
  }
}

}  // namespace rekord

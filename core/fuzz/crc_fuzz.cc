// Every implementation of CRC-32C that this CPU can run gives the same checksum as the
// portable one, for the whole input and for the input cut into pieces.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include "crc32c.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

// The bytes choose the cuts: a piece is as long as the byte at its start says, times a
// step that is sometimes larger than the blocks of the vector code.
uint32_t in_pieces(const rekord::CrcImplementation& crc, const std::byte* bytes, size_t count) {
  const size_t step = count > 0 ? 1 + static_cast<size_t>(bytes[count - 1]) % 8 : 1;
  uint32_t sum = 0;
  for (size_t at = 0; at < count;) {
    const size_t wanted = static_cast<size_t>(bytes[at]) * step;
    const size_t piece = std::min(std::max<size_t>(wanted, 1), count - at);
    sum = crc.extend(sum, bytes + at, piece);
    at += piece;
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::byte* const bytes = reinterpret_cast<const std::byte*>(data);
  const auto all = rekord::crc32c_implementations();
  const rekord::CrcImplementation& portable = all.front();
  const uint32_t expected = portable.extend(0, bytes, size);
  uint64_t number = 0;
  for (size_t i = 0; i < std::min<size_t>(size, 8); ++i) number |= uint64_t{data[i]} << (8 * i);

  for (const rekord::CrcImplementation& crc : all) {
    require(crc.extend(0, bytes, size) == expected);
    require(in_pieces(crc, bytes, size) == expected);
    require(crc.u64(number) == portable.u64(number));
    // A checksum that came from other bytes, at an address of another alignment.
    if (size > 0)
      require(crc.extend(expected, bytes + 1, size - 1) ==
              portable.extend(expected, bytes + 1, size - 1));
  }
  require(rekord::unmask_crc(rekord::mask_crc(expected)) == expected);
  return 0;
}

// CRC-32C (Castagnoli), the checksum that guards both halves of a TFRecord frame.
//
//     | length | crc | payload L… | crc |
//          └─────┘         └────────┘       each crc is stored masked
//
// A CRC is the remainder of the bytes, read as one long polynomial over GF(2), by
// x^32 + … + 1. It is linear, so pieces of a buffer can be summed apart, moved to
// their place by a multiplication, and added; and zeros put in front of a message
// change nothing. Everything fast in crc32c.cc follows from these two facts.
//
// TFRecord stores the checksum masked (rotated, plus a constant): the CRC of any bytes
// followed by their own CRC is one constant, and records are stored inside of records.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace rekord {

// One way to compute the checksum. A hot loop takes `CrcImplementation::best()` into a
// local once; the free functions below look it up at every call (a load and a branch).
struct CrcImplementation {
  const char* name;
  // The checksum of A followed by these bytes, given `crc` = the checksum of A.
  uint32_t (*extend)(uint32_t crc, const std::byte* bytes, size_t count) noexcept;
  // The checksum of the eight little-endian bytes of `value`: a frame's length.
  uint32_t (*u64)(uint64_t value) noexcept;

  // The fastest; with REKORD_PORTABLE (portable.h) the portable one.
  static const CrcImplementation& best() noexcept;
};

// Every implementation that this CPU can run, slowest (and plainest) first. The first is
// portable, the last is `best()`. Tests and fuzzing hold them all against each other.
std::span<const CrcImplementation> crc32c_implementations() noexcept;

inline uint32_t crc32c_extend(uint32_t crc, std::span<const std::byte> bytes) noexcept {
  return CrcImplementation::best().extend(crc, bytes.data(), bytes.size());
}

inline uint32_t crc32c(std::span<const std::byte> bytes) noexcept {
  return crc32c_extend(0, bytes);
}

inline uint32_t crc32c_u64(uint64_t value) noexcept { return CrcImplementation::best().u64(value); }

inline constexpr uint32_t kCrcMaskDelta = 0xA282EAD8u;

constexpr uint32_t mask_crc(uint32_t crc) noexcept { return std::rotr(crc, 15) + kCrcMaskDelta; }

constexpr uint32_t unmask_crc(uint32_t masked) noexcept {
  return std::rotl(masked - kCrcMaskDelta, 15);
}

inline uint32_t masked_crc32c(std::span<const std::byte> bytes) noexcept {
  return mask_crc(crc32c(bytes));
}

}  // namespace rekord

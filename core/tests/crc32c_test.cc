#include "crc32c.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>
#include <string_view>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

using Bytes = std::span<const std::byte>;

Bytes bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// The definition, one bit at a time: nothing shared with the code under test.
uint32_t reference(Bytes bytes, uint32_t crc = 0) {
  uint32_t state = crc ^ 0xFFFFFFFFu;
  for (const std::byte byte : bytes) {
    state ^= static_cast<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) state = (state & 1) ? (state >> 1) ^ 0x82F63B78u : state >> 1;
  }
  return state ^ 0xFFFFFFFFu;
}

// The same bytes at every run, on every machine.
std::vector<std::byte> noise(size_t count, uint64_t seed) {
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<std::byte>(seed >> 56);
  }
  return bytes;
}

uint32_t extend(const CrcImplementation& crc, uint32_t before, Bytes bytes) {
  return crc.extend(before, bytes.data(), bytes.size());
}

TEST("the known checksums come out of every implementation") {
  struct Known {
    std::string_view text;
    uint32_t crc;
  };
  const Known known[] = {
      {"", 0x00000000u},
      {"a", 0xC1D04330u},
      {"123456789", 0xE3069283u},
  };
  for (const CrcImplementation& crc : crc32c_implementations())
    for (const auto& [text, expected] : known) CHECK_EQ(extend(crc, 0, bytes_of(text)), expected);
}

// RFC 3720, appendix B.4.
TEST("thirty-two zeros, ones and counting bytes have the checksums of iSCSI") {
  std::vector<std::byte> zeros(32), ones(32, std::byte{0xFF}), up(32), down(32);
  for (unsigned i = 0; i < 32; ++i) {
    up[i] = static_cast<std::byte>(i);
    down[i] = static_cast<std::byte>(31 - i);
  }
  for (const CrcImplementation& crc : crc32c_implementations()) {
    CHECK_EQ(extend(crc, 0, zeros), 0x8A9136AAu);
    CHECK_EQ(extend(crc, 0, ones), 0x62A8AB43u);
    CHECK_EQ(extend(crc, 0, up), 0x46DD794Eu);
    CHECK_EQ(extend(crc, 0, down), 0x113FDB5Cu);
  }
}

TEST("masked checksums are those that TensorFlow stores") {
  CHECK_EQ(masked_crc32c(bytes_of("123456789")), 0xC78AB0E5u);
  CHECK_EQ(masked_crc32c({}), 0xA282EAD8u);
  CHECK_EQ(masked_crc32c(bytes_of("abc")), 0x21F1576Eu);
  CHECK_EQ(mask_crc(crc32c_u64(0)), 0x07980329u);
  CHECK_EQ(mask_crc(crc32c_u64(3)), 0x0E4999B0u);
  CHECK_EQ(mask_crc(crc32c_u64(0x27)), 0x46B1E1BBu);
  // The Example {a: [5, -1], b: [b"ab", b""]}.
  const std::string_view example(
      "\x0a\x25\x0a\x14\x0a\x01\x61\x12\x0f\x1a\x0d\x0a\x0b\x05"
      "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"
      "\x0a\x0d\x0a\x01\x62\x12\x08\x0a\x06\x0a\x02\x61\x62\x0a\x00",
      39);
  CHECK_EQ(masked_crc32c(bytes_of(example)), 0xD8F7F2A7u);
}

TEST("masking can be undone") {
  static_assert(mask_crc(0) == 0xA282EAD8u);
  static_assert(unmask_crc(mask_crc(0xE3069283u)) == 0xE3069283u);
  uint32_t crc = 1;
  for (int i = 0; i < 10'000; ++i) {
    crc = crc * 1664525u + 1013904223u;
    CHECK_EQ(unmask_crc(mask_crc(crc)), crc);
    CHECK_EQ(mask_crc(unmask_crc(crc)), crc);
  }
}

TEST("every length up to 1200 at every alignment agrees with the definition") {
  alignas(64) static std::byte buffer[1200 + 16];
  const std::vector<std::byte> data = noise(1200, 1);
  std::vector<uint32_t> expected(data.size() + 1);
  for (size_t count = 1; count <= data.size(); ++count)
    expected[count] = reference(Bytes(data).subspan(count - 1, 1), expected[count - 1]);
  for (const CrcImplementation& crc : crc32c_implementations())
    for (size_t alignment = 0; alignment < 16; ++alignment) {
      std::memcpy(buffer + alignment, data.data(), data.size());
      for (size_t count = 0; count <= data.size(); ++count)
        CHECK_EQ(crc.extend(0, buffer + alignment, count), expected[count]);
    }
}

TEST("every length up to 1200 extends any checksum") {
  const std::vector<std::byte> data = noise(1200, 2);
  for (const uint32_t before : {0xFFFFFFFFu, 0xDEADBEEFu, 0x00000001u}) {
    uint32_t expected = before;
    for (size_t count = 0; count <= data.size(); ++count) {
      if (count > 0) expected = reference(Bytes(data).subspan(count - 1, 1), expected);
      for (const CrcImplementation& crc : crc32c_implementations())
        CHECK_EQ(crc.extend(before, data.data(), count), expected);
    }
  }
}

TEST("lengths around the rounds of the interleaved loops agree with the definition") {
  const std::vector<std::byte> data = noise(3 * 3072 + 64, 3);
  for (const size_t round : {2048u, 3072u, 4096u, 6144u, 9216u})
    for (size_t count = round - 40; count <= round + 40; ++count) {
      const uint32_t expected = reference(Bytes(data).first(count));
      for (const CrcImplementation& crc : crc32c_implementations())
        CHECK_EQ(crc.extend(0, data.data(), count), expected);
    }
}

TEST("a mebibyte of noise agrees with the definition") {
  const std::vector<std::byte> data = noise((1u << 20) + 5, 4);
  for (const size_t count : {size_t{1} << 20, data.size()}) {
    const uint32_t expected = reference(Bytes(data).first(count));
    for (const CrcImplementation& crc : crc32c_implementations())
      CHECK_EQ(crc.extend(0, data.data(), count), expected);
    CHECK_EQ(crc32c(Bytes(data).first(count)), expected);
  }
}

TEST("a buffer cut in two anywhere has the checksum of the whole") {
  const std::vector<std::byte> data = noise(1500, 5);
  const uint32_t expected = reference(data);
  for (const CrcImplementation& crc : crc32c_implementations())
    for (size_t cut = 0; cut <= data.size(); ++cut) {
      const uint32_t first = extend(crc, 0, Bytes(data).first(cut));
      CHECK_EQ(extend(crc, first, Bytes(data).subspan(cut)), expected);
    }
  CHECK_EQ(crc32c_extend(crc32c(Bytes(data).first(700)), Bytes(data).subspan(700)), expected);
}

TEST("the eight bytes of a length have the same checksum as a number and as bytes") {
  uint64_t value = 0;
  for (int i = 0; i < 2'000; ++i) {
    std::byte bytes[8];
    for (unsigned k = 0; k < 8; ++k) bytes[k] = static_cast<std::byte>(value >> (8 * k));
    const uint32_t expected = reference(bytes);
    for (const CrcImplementation& crc : crc32c_implementations())
      CHECK_EQ(crc.u64(value), expected);
    CHECK_EQ(crc32c_u64(value), expected);
    value = i < 64 ? uint64_t{1} << i : value * 6364136223846793005u + 1442695040888963407u;
  }
}

TEST("no implementation reads a byte outside of its buffer") {
  // One readable page between two that are not: a stray read is a crash.
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped = mmap(nullptr, 3 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  REQUIRE(mapped != MAP_FAILED);
  std::byte* const begin = static_cast<std::byte*>(mapped) + page;
  std::byte* const end = begin + page;
  REQUIRE(mprotect(begin, page, PROT_READ | PROT_WRITE) == 0);
  const std::vector<std::byte> data = noise(600, 6);
  for (size_t count = 0; count <= data.size(); ++count) {
    const uint32_t expected = reference(Bytes(data).first(count));
    for (std::byte* const at : {begin, end - count}) {
      if (count > 0) std::memcpy(at, data.data(), count);
      for (const CrcImplementation& crc : crc32c_implementations())
        CHECK_EQ(crc.extend(0, at, count), expected);
    }
  }
  munmap(mapped, 3 * page);
}

TEST("the portable implementation comes first and the best one last") {
  const auto all = crc32c_implementations();
  REQUIRE(!all.empty());
  CHECK_EQ(all.front().name, "portable");
  CHECK_EQ(all.back().name, CrcImplementation::best().name);
}

}  // namespace
}  // namespace rekord

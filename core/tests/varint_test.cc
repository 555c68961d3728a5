#include "varint.h"

#include <vector>

#include "harness.h"
#include "payloads.h"
#include "wire.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;
using testing::Padded;
using testing::varint;

// All varints of a chunk, or nothing where it is bad; the same by every implementation.
std::optional<std::vector<int64_t>> decoded(const Buffer& chunk) {
  const Padded padded(chunk);
  const Bytes bytes = padded;
  std::optional<std::vector<int64_t>> found;
  for (const VarintImplementation& each : varint_implementations()) {
    std::vector<int64_t> out(chunk.size());
    const size_t count = each.decode(bytes.data(), bytes.size(), out.data());
    const bool bad = count == kBadVarint;
    if (!bad) out.resize(count);
    if (&each != &varint_implementations().front()) {
      CHECK_EQ(bad, !found.has_value());
      if (!bad && found) CHECK_EQ(out, *found);
    }
    found = bad ? std::nullopt : std::optional(out);
  }
  return found;
}

// The same, one byte after another.
std::optional<std::vector<int64_t>> plainly(const Buffer& chunk) {
  std::vector<int64_t> out;
  Reader reader(chunk, chunk.data());
  while (!reader.done()) {
    uint64_t value = 0;
    if (reader.varint(value)) return std::nullopt;
    out.push_back(static_cast<int64_t>(value));
  }
  return out;
}

// A number of exactly so many varint bytes.
uint64_t number_of(size_t bytes, uint64_t noise) {
  if (bytes == 1) return noise & 0x7f;
  const int bits = static_cast<int>(std::min<size_t>(7 * bytes, 64));
  const uint64_t mask = ~uint64_t{0} >> (64 - bits);
  return (noise & mask & ~(uint64_t{1} << (bits - 1))) | uint64_t{1} << (7 * (bytes - 1));
}

class Noise {
 public:
  uint64_t next() noexcept { return state_ = state_ * 6364136223846793005u + 1442695040888963407u; }
  size_t below(size_t bound) noexcept { return static_cast<size_t>((next() >> 33) % bound); }

 private:
  uint64_t state_ = 7;
};

TEST("one varint of every length is decoded, and of no other length") {
  Noise noise;
  for (size_t bytes = 1; bytes <= 10; ++bytes) {
    for (int i = 0; i < 50; ++i) {
      const uint64_t number = number_of(bytes, noise.next());
      const Buffer chunk = varint(number);
      REQUIRE(chunk.size() == bytes);
      const Padded padded(join({chunk, chunk}));
      const Bytes at = padded;
      for (size_t length = 0; length <= 12; ++length) {
        int64_t out = 0;
        const bool good = decode_varint(at.data(), length, out);
        CHECK_EQ(good, length == bytes);
        if (good) CHECK_EQ(static_cast<uint64_t>(out), number);
      }
    }
  }
}

TEST("a varint in more bytes than it needs is the same number") {
  for (size_t bytes = 1; bytes <= 10; ++bytes) {
    Buffer chunk(bytes, std::byte{0x80});
    chunk.front() |= std::byte{0x05};
    chunk.back() &= std::byte{0x7f};
    int64_t out = 0;
    const Padded padded(chunk);
    CHECK(decode_varint(Bytes(padded).data(), bytes, out));
    CHECK_EQ(out, 5);
    REQUIRE(decoded(chunk).has_value());
    CHECK_EQ(*decoded(chunk), std::vector<int64_t>{5});
  }
}

TEST("what a tenth byte says beyond 64 bits is dropped, as protobuf does") {
  CHECK_EQ(*decoded(hex("ff*9 7f")), std::vector<int64_t>{-1});
  CHECK_EQ(*decoded(hex("80*9 7e")), std::vector<int64_t>{0});
  CHECK_EQ(*decoded(hex("80*9 01")), std::vector<int64_t>{INT64_MIN});
  CHECK_EQ(*decoded(hex("ff*8 7f")), std::vector<int64_t>{INT64_MAX});
}

TEST("runs of varints of every mix of lengths are what a plain reader gives") {
  Noise noise;
  for (int run = 0; run < 4000; ++run) {
    // Mostly of one length, so that every path for whole words is taken, and mixed.
    const size_t usual = 1 + noise.below(10);
    Buffer chunk;
    for (size_t values = noise.below(run % 8 == 0 ? 300 : 24); values > 0; --values) {
      const size_t bytes = noise.below(4) == 0 ? 1 + noise.below(10) : usual;
      chunk = join({chunk, varint(number_of(bytes, noise.next()))});
    }
    const auto found = decoded(chunk);
    REQUIRE(found.has_value());
    CHECK_EQ(*found, *plainly(chunk));
    CHECK_EQ(count_varints(chunk.data(), chunk.size()), found->size());
  }
}

TEST("a chunk that ends inside a varint is bad, whatever bytes come after it") {
  Noise noise;
  for (size_t before = 0; before < 80; ++before) {
    for (size_t bytes = 2; bytes <= 10; ++bytes) {
      Buffer chunk;
      for (size_t i = 0; i < before; ++i) chunk.push_back(std::byte{1});
      const Buffer last = varint(number_of(bytes, noise.next()));
      for (size_t cut = 1; cut < bytes; ++cut) {
        // The rest of the number stands in the padding: in the record, but not in the chunk.
        Buffer padded = join({chunk, last});
        const size_t size = padded.size() - cut;
        padded.resize(padded.size() + kPadding, std::byte{1});
        for (const VarintImplementation& each : varint_implementations()) {
          std::vector<int64_t> out(size);
          CHECK(each.decode(padded.data(), size, out.data()) == kBadVarint);
        }
      }
    }
  }
}

TEST("a varint of eleven bytes is bad at every place of a chunk") {
  for (size_t before = 0; before < 80; ++before)
    for (size_t after = 0; after < 12; ++after) {
      const Buffer ones(before, std::byte{1}), twos(after, std::byte{2});
      CHECK(!decoded(join({ones, hex("ff*10 01"), twos})).has_value());
      CHECK(decoded(join({ones, hex("ff*9 01"), twos})).has_value());
    }
}

TEST("an empty chunk has no varints") {
  CHECK_EQ(decoded({})->size(), 0u);
  CHECK_EQ(count_varints(nullptr, 0), 0u);
}

TEST("no byte beyond the room for one value a byte is written") {
  // ASan watches the vector's end.
  for (size_t bytes = 1; bytes <= 140; ++bytes) {
    const auto found = decoded(Buffer(bytes, std::byte{3}));
    REQUIRE(found.has_value());
    CHECK_EQ(*found, std::vector<int64_t>(bytes, 3));
  }
}

}  // namespace
}  // namespace rekord

#include "digest.h"

#include <set>
#include <utility>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

std::pair<uint64_t, uint64_t> of(const std::vector<std::byte>& bytes, uint64_t seed = 0) {
  const Digest result = mix({}, digest(Bytes(bytes), seed));
  return {result.low, result.high};
}

std::vector<std::byte> counted(size_t size) {
  std::vector<std::byte> bytes(size);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 7 + 1);
  return bytes;
}

TEST("every length of the same bytes has a digest of its own") {
  std::set<std::pair<uint64_t, uint64_t>> seen;
  for (size_t size = 0; size < 600; ++size) {
    seen.insert(of(counted(size)));
    seen.insert(of(std::vector<std::byte>(size)));  // all zeros, which no padding may hide
  }
  CHECK_EQ(seen.size(), size_t{1199});
}

TEST("every single bit of a value changes both halves of its digest") {
  for (const size_t size : {1u, 8u, 15u, 16u, 17u, 64u, 127u, 128u, 200u, 321u}) {
    const std::vector<std::byte> plain = counted(size);
    const auto before = of(plain);
    std::set<uint64_t> low{before.first}, high{before.second};
    for (size_t bit = 0; bit < size * 8; ++bit) {
      std::vector<std::byte> flipped = plain;
      flipped[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      const auto after = of(flipped);
      low.insert(after.first);
      high.insert(after.second);
    }
    CHECK_EQ(low.size(), size * 8 + 1);
    CHECK_EQ(high.size(), size * 8 + 1);
  }
}

TEST("swapped halves, swapped blocks and another seed are other contents") {
  std::vector<std::byte> bytes = counted(256);
  std::vector<std::byte> swapped = bytes;
  for (size_t i = 0; i < 16; ++i) std::swap(swapped[i], swapped[16 + i]);
  std::vector<std::byte> far = bytes;
  for (size_t i = 0; i < 16; ++i) std::swap(far[i], far[64 + i]);
  std::vector<std::byte> halves(bytes.begin(), bytes.begin() + 16), turned = halves;
  for (size_t i = 0; i < 8; ++i) std::swap(turned[i], turned[8 + i]);
  CHECK(of(bytes) != of(swapped));
  CHECK(of(bytes) != of(far));
  CHECK(of(halves) != of(turned));
  CHECK(of(bytes) != of(bytes, 1));
}

TEST("numbers from nought up meet nowhere") {
  std::set<uint64_t> low, high;
  for (uint64_t value = 0; value < 100'000; ++value) {
    std::vector<std::byte> bytes(8);
    store_le(bytes.data(), value);
    const auto result = of(bytes);
    low.insert(result.first);
    high.insert(result.second);
  }
  CHECK_EQ(low.size(), size_t{100'000});
  CHECK_EQ(high.size(), size_t{100'000});
}

TEST("the order of digests counts, and so does how often one comes") {
  const Digest one = digest(uint64_t{1}, 0), two = digest(uint64_t{2}, 0);
  const Digest once = mix({}, one), twice = mix(once, one);
  CHECK(once.low != twice.low);
  CHECK(mix(mix({}, one), two).low != mix(mix({}, two), one).low);
  CHECK(mix(mix({}, one), two).high != mix(mix({}, two), one).high);
}

}  // namespace
}  // namespace rekord

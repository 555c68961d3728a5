#include "order.h"

#include <array>
#include <set>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

TEST("every number of records up to a few hundred is permuted, and each position found again") {
  for (uint64_t n = 1; n <= 300; ++n)
    for (const uint64_t key : {0u, 1u, 12345u}) {
      const Permutation order(n, key);
      std::set<uint64_t> seen;
      for (uint64_t p = 0; p < n; ++p) {
        const uint64_t value = order(p);
        CHECK(value < n);
        CHECK_EQ(order.position_of(value), p);
        seen.insert(value);
      }
      CHECK_EQ(seen.size(), n);
    }
}

TEST("around every power of two the permutation is one") {
  for (int bits = 2; bits <= 17; ++bits)
    for (const int off : {-1, 0, 1}) {
      const uint64_t n = (uint64_t{1} << bits) + static_cast<uint64_t>(off);
      const Permutation order(n, 7);
      std::vector<bool> seen(n);
      for (uint64_t p = 0; p < n; ++p) seen[order(p)] = true;
      for (uint64_t p = 0; p < n; ++p) CHECK(seen[p]);
    }
}

TEST("very large numbers of records are permuted within their bounds") {
  for (const uint64_t n : {(uint64_t{1} << 40) + 3, uint64_t{1} << 62}) {
    const Permutation order(n, 99);
    for (uint64_t p = 0; p < 1000; ++p) {
      const uint64_t position = p * (n / 1000);
      CHECK(order(position) < n);
      CHECK_EQ(order.position_of(order(position)), position);
    }
  }
}

TEST("all orders of four records come up about equally often") {
  std::vector<int> counts(24);
  for (uint64_t key = 0; key < 24'000; ++key) {
    const Permutation order(4, order_key(std::array<uint64_t, 2>{key, 0}));
    std::vector<int> left = {0, 1, 2, 3};
    int rank = 0;
    for (uint64_t p = 0; p < 4; ++p) {
      const auto value = static_cast<int>(order(p));
      int place = 0;
      while (left[static_cast<size_t>(place)] != value) ++place;
      rank = rank * static_cast<int>(left.size()) + place;
      left.erase(left.begin() + place);
    }
    ++counts[static_cast<size_t>(rank)];
  }
  // 1000 each on the average; chance alone strays by a hundred now and then.
  for (const int count : counts) CHECK(count > 800 && count < 1200);
}

TEST("orders of today are the orders of tomorrow") {
  // A state that was saved says nothing of the order but its seed: these numbers must never change.
  const auto first = [](uint64_t n, uint64_t key) {
    const Permutation order(n, key);
    return std::vector<uint64_t>{order(0), order(1), order(2), order(3)};
  };
  CHECK(first(10, 0) == (std::vector<uint64_t>{9, 4, 0, 8}));
  CHECK(first(1'000'000, 42) == (std::vector<uint64_t>{381992, 214133, 904070, 200073}));
  CHECK_EQ(order_key(std::array<uint64_t, 2>{1, 2}), uint64_t{16102348862467931958u});
  BlockOrder blocks(1000, 16, 4, 3, 5);
  CHECK((std::vector<uint64_t>{blocks(0), blocks(1), blocks(2), blocks(3)}) ==
        (std::vector<uint64_t>{910, 65, 962, 152}));
}

TEST("blocks, windows and lanes of any size still make a permutation") {
  for (const uint64_t n : {1u, 2u, 7u, 100u, 1000u, 1023u})
    for (const uint64_t block : {1u, 3u, 16u, 2000u})
      for (const uint64_t window : {1u, 4u, 1000u})
        for (const uint64_t lanes : {1u, 2u, 7u, 1500u}) {
          BlockOrder order(n, block, window, lanes, 11);
          std::vector<bool> seen(n);
          for (uint64_t p = 0; p < n; ++p) {
            const uint64_t record = order(p);
            REQUIRE(record < n);
            seen[record] = true;
          }
          for (uint64_t p = 0; p < n; ++p) CHECK(seen[p]);
        }
}

TEST("a lane reads few blocks at a time, and lanes share at most the blocks where they meet") {
  constexpr uint64_t kN = 10'000, kBlock = 50, kWindow = 4, kLanes = 4;
  BlockOrder order(kN, kBlock, kWindow, kLanes, 3);
  std::vector<std::set<uint64_t>> blocks(kLanes);
  for (uint64_t lane = 0; lane < kLanes; ++lane) {
    std::set<uint64_t> in_window;
    for (uint64_t i = 0; i < kN / kLanes; ++i) {
      const uint64_t block = order(i * kLanes + lane) / kBlock;
      blocks[lane].insert(block);
      in_window.insert(block);
      if ((i + 1) % (kBlock * kWindow) == 0) {
        CHECK(in_window.size() <= kWindow + 1);
        in_window.clear();
      }
    }
  }
  size_t total = 0;
  for (const auto& each : blocks) total += each.size();
  CHECK(total <= kN / kBlock + kLanes);
}

}  // namespace
}  // namespace rekord

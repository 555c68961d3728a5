#include "pool.h"

#include <cstring>
#include <set>
#include <thread>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

bool is_all(const std::byte* at, size_t bytes, std::byte value) {
  return std::all_of(at, at + bytes, [&](std::byte byte) { return byte == value; });
}

TEST("a buffer has room, and is aligned for vectors") {
  const auto pool = Pool::create(1 << 20, false);
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{4096}, size_t{4097}, size_t{100'000}}) {
    const BlockRef block = pool->acquire(bytes);
    CHECK(block->capacity() >= bytes);
    CHECK(block->capacity() <= std::max<size_t>(256, bytes * 2));
    CHECK_EQ(reinterpret_cast<uintptr_t>(block->data()) % 64, 0u);
    std::memset(block->data(), 1, block->capacity());
  }
}

TEST("a buffer comes back when its last owner lets go, and not before") {
  const auto pool = Pool::create(1 << 20, false);
  BlockRef first = pool->acquire(10'000);
  const std::byte* const memory = first->data();
  const size_t capacity = first->capacity();
  BlockRef second = first;
  first.reset();
  CHECK_EQ(pool->idle_bytes(), 0u);
  CHECK(pool->acquire(10'000)->data() != memory);
  const size_t idle = pool->idle_bytes();
  second.reset();
  CHECK_EQ(pool->idle_bytes(), idle + capacity);
  CHECK(pool->acquire(10'000)->data() == memory);
}

TEST("a buffer is used again for a like size only") {
  const auto pool = Pool::create(1 << 24, false);
  BlockRef block = pool->acquire(10'000);
  const std::byte* const memory = block->data();
  const size_t capacity = block->capacity();
  block.reset();
  const BlockRef smaller = pool->acquire(5'000), larger = pool->acquire(capacity + 1);
  CHECK(smaller->data() != memory);
  CHECK(larger->data() != memory);
  CHECK_EQ(pool->idle_bytes(), capacity);
  const BlockRef same = pool->acquire(capacity);
  CHECK(same->data() == memory);
  CHECK_EQ(pool->idle_bytes(), 0u);
}

TEST("every size is found again after it was given back") {
  for (size_t bytes = 1; bytes < (size_t{1} << 22); bytes = bytes * 5 / 4 + 1) {
    const auto pool = Pool::create(size_t{1} << 30, false);
    BlockRef block = pool->acquire(bytes);
    const std::byte* const memory = block->data();
    const size_t capacity = block->capacity();
    block.reset();
    CHECK_EQ(pool->idle_bytes(), capacity);
    block = pool->acquire(bytes);
    CHECK(block->data() == memory);
    CHECK_EQ(block->capacity(), capacity);
    CHECK_EQ(pool->idle_bytes(), 0u);
  }
}

TEST("idle bytes never pass their limit") {
  const auto pool = Pool::create(50'000, false);
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 20; ++i) blocks.push_back(pool->acquire(10'000));
  for (BlockRef& block : blocks) {
    block.reset();
    CHECK(pool->idle_bytes() <= 50'000u);
  }
  CHECK(pool->idle_bytes() > 0u);
}

TEST("a buffer larger than the limit, and any where the limit is none, is let go at once") {
  const auto pool = Pool::create(50'000, false);
  pool->acquire(60'000);
  CHECK_EQ(pool->idle_bytes(), 0u);
  const auto none = Pool::create(0, false);
  none->acquire(1);
  CHECK_EQ(none->idle_bytes(), 0u);
}

TEST("an idle buffer is poisoned where that is asked for") {
  const auto pool = Pool::create(1 << 20, true);
  BlockRef block = pool->acquire(10'000);
  std::memset(block->data(), 1, block->capacity());
  block.reset();
  block = pool->acquire(10'000);
  CHECK(is_all(block->data(), block->capacity(), std::byte{0xa5}));
}

TEST("a buffer outlives the pool that it came from") {
  auto pool = Pool::create(1 << 20, false);
  const BlockRef block = pool->acquire(10'000);
  pool->acquire(20'000);  // and an idle one goes with the pool
  pool.reset();
  std::memset(block->data(), 1, block->capacity());
}

TEST("several threads take and give back at once, and nobody's bytes are another's") {
  const auto pool = Pool::create(1 << 22, true);
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t id = 0; id < wrong.size(); ++id)
    threads.emplace_back([&, id] {
      const auto mark = static_cast<std::byte>(id + 1);
      for (size_t i = 0; i < 500; ++i) {
        const BlockRef block = pool->acquire(4096 << (i % 3));
        std::memset(block->data(), static_cast<int>(mark), block->capacity());
        std::this_thread::yield();
        if (!is_all(block->data(), block->capacity(), mark)) ++wrong[id];
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace rekord

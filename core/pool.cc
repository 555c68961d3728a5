#include "pool.h"

#if __has_include(<sys/mman.h>)
#include <sys/mman.h>
#endif

#include <array>
#include <bit>
#include <cstring>
#include <mutex>
#include <new>
#include <vector>

namespace rekord {
namespace {

constexpr std::align_val_t kAlignment{64};
constexpr size_t kSmallest = 256;
// Many columns are filled side by side. If their buffers all began at the same
// place in a page, they would compete for the same few lines of the first cache.
// Smaller ones lie in one page with others.
constexpr size_t kColours = 61;
constexpr size_t kColourBytes = 64;
constexpr size_t kSmallestColoured = 4096;

// From this size on, memory is aligned for huge pages and the kernel is asked for them:
// with pages of 4 KiB, a batch of 64 MiB takes 16,384 page faults when it is new, and
// misses of the TLB whenever it is used again.
constexpr std::align_val_t kHugePage{size_t{2} << 20};
constexpr size_t kSmallestHuge = size_t{4} << 20;

std::align_val_t alignment(size_t capacity) noexcept {
  return capacity >= kSmallestHuge ? kHugePage : kAlignment;
}

std::byte* allocate(size_t capacity) {
  const size_t bytes = capacity + (capacity >= kSmallestColoured ? kColours * kColourBytes : 0);
  auto* memory = static_cast<std::byte*>(::operator new(bytes, alignment(capacity)));
#ifdef MADV_HUGEPAGE
  // Advice: where it is refused, the memory is as good as any other.
  if (capacity >= kSmallestHuge) (void)::madvise(memory, bytes, MADV_HUGEPAGE);
#endif
  return memory;
}

void release(std::byte* memory, size_t capacity) noexcept {
  ::operator delete(memory, alignment(capacity));
}

// Powers of two and the steps halfway between them.
size_t round_up(size_t bytes) noexcept {
  if (bytes <= kSmallest) return kSmallest;
  const size_t power = std::bit_ceil(bytes);
  const size_t between = power / 4 * 3;
  return bytes <= between ? between : power;
}

// The same for every capacity that round_up gives.
size_t size_class(size_t capacity) noexcept {
  const size_t power = std::bit_ceil(capacity);
  return static_cast<size_t>(std::countr_zero(power)) * 2 + (capacity == power ? 1 : 0);
}

class RecyclingPool final : public Pool {
 public:
  RecyclingPool(size_t idle_bytes_at_most, bool poison) noexcept
      : most_(idle_bytes_at_most), poison_(poison) {}

  ~RecyclingPool() override {
    for (auto& shelf : idle_)
      for (const Idle& idle : shelf) release(idle.memory, idle.capacity);
  }

  BlockRef acquire(size_t at_least) override {
    if (at_least > 2 * kMostBlockBytes) throw std::bad_alloc();
    const size_t capacity = round_up(at_least);
    Idle found{};
    size_t shift = 0;
    {
      std::lock_guard lock(mutex_);
      auto& shelf = idle_[size_class(capacity)];
      if (!shelf.empty()) {
        found = shelf.back();
        shelf.pop_back();
        idle_bytes_ -= capacity;
      } else if (capacity >= kSmallestColoured) {
        colour_ = (colour_ + 1) % kColours;
        shift = colour_ * kColourBytes;
      }
    }
    if (found.data == nullptr) {
      found.memory = allocate(capacity);
      found.data = found.memory + shift;
    }
    return std::make_shared<Block>(found.memory, found.data, capacity, shared_from_this());
  }

  size_t idle_bytes() const override {
    std::lock_guard lock(mutex_);
    return idle_bytes_;
  }

 protected:
  void give_back(std::byte* memory, std::byte* data, size_t capacity) noexcept override {
    if (poison_) std::memset(data, 0xa5, capacity);
    {
      std::lock_guard lock(mutex_);
      auto& shelf = idle_[size_class(capacity)];
      if (capacity <= most_ && idle_bytes_ <= most_ - capacity) {
        try {
          shelf.push_back({memory, data, capacity});
          idle_bytes_ += capacity;
          return;
        } catch (const std::bad_alloc&) {
          // No room to remember it: let it go.
        }
      }
    }
    release(memory, capacity);
  }

 private:
  struct Idle {
    std::byte* memory;
    std::byte* data;
    size_t capacity;
  };

  mutable std::mutex mutex_;
  std::array<std::vector<Idle>, 128 + 2> idle_;
  size_t idle_bytes_ = 0;
  size_t colour_ = 0;
  const size_t most_;
  const bool poison_;
};

}  // namespace

std::shared_ptr<Pool> Pool::create(size_t idle_bytes_at_most, bool poison) {
  return std::make_shared<RecyclingPool>(idle_bytes_at_most, poison);
}

Block::~Block() { home_->give_back(memory_, data_, capacity_); }

}  // namespace rekord

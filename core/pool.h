// Buffers that are reused after their last owner releases them.
//
// The first write to fresh memory costs more than decoding into it (the kernel
// clears each page), so a buffer that a batch no longer needs goes to the next
// one. It comes back only when its last owner lets go: an array that a caller
// keeps is never written again.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace rekord {

class Pool;

// A stretch of memory, aligned for any vector instruction.
class Block {
 public:
  Block(std::byte* memory, std::byte* data, size_t capacity, std::shared_ptr<Pool> home) noexcept
      : memory_(memory), data_(data), capacity_(capacity), home_(std::move(home)) {}
  ~Block();
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* data() const noexcept { return data_; }
  size_t capacity() const noexcept { return capacity_; }
  Pool& home() const noexcept { return *home_; }

 private:
  std::byte* memory_;  // as it was allocated
  std::byte* data_;
  size_t capacity_;
  std::shared_ptr<Pool> home_;
};

using BlockRef = std::shared_ptr<Block>;

// No machine has more; larger sizes are refused as if memory had run out.
inline constexpr size_t kMostBlockBytes = ~size_t{0} >> 2;

// Never waits: if no idle buffer fits, a new one is created. Only the bytes in
// idle buffers are limited. Thread-safe.
class Pool : public std::enable_shared_from_this<Pool> {
 public:
  // With `poison`, idle buffers are overwritten, so that a test sees who reads them.
  static std::shared_ptr<Pool> create(size_t idle_bytes_at_most, bool poison);
  virtual ~Pool() = default;

  virtual BlockRef acquire(size_t at_least) = 0;
  virtual size_t idle_bytes() const = 0;

 protected:
  friend class Block;
  virtual void give_back(std::byte* memory, std::byte* data, size_t capacity) noexcept = 0;
};

}  // namespace rekord

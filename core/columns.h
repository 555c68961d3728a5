// The columns of one batch while it is being filled.
//
//     dense numbers    values: rows × count
//     ragged numbers   values, and offsets: rows + 1
//     dense bytes      data, and ends of the values: rows × count + 1
//     ragged bytes     the same, and offsets: rows + 1 (in values)
//
// All offsets are int64 and begin with 0. Long byte strings are not copied: they
// stay in the slab that was read, and the column holds on to it (BytesView).
#pragma once

#include <algorithm>
#include <vector>

#include "plan.h"
#include "pool.h"
#include "varint.h"

namespace rekord {

// A buffer that grows by doubling, kept in a pool.
template <class Item>
class Growing {
 public:
  void start(Pool& pool, size_t items) {
    block_ = pool.acquire(items * sizeof(Item) + kPadding);
    settle();
    used_ = 0;
  }

  // Room for `more` items and kPadding bytes after them.
  void reserve(Pool& pool, size_t more) {
    if (more <= room_ - used_) [[likely]]
      return;
    const size_t needed = (used_ + more) * sizeof(Item) + kPadding;
    BlockRef bigger = pool.acquire(std::max(needed, block_->capacity() * 2));
    std::memcpy(bigger->data(), block_->data(), used_ * sizeof(Item));
    block_ = std::move(bigger);
    settle();
  }

  Item* data() noexcept { return data_; }
  const Item* data() const noexcept { return data_; }
  Item* end() noexcept { return data() + used_; }
  size_t size() const noexcept { return used_; }
  void grow_by(size_t items) noexcept { used_ += items; }
  void cut_to(size_t items) noexcept { used_ = items; }
  void push(Item item) noexcept { data()[used_++] = item; }
  Item back() const noexcept { return data()[used_ - 1]; }
  const BlockRef& block() const noexcept { return block_; }
  BlockRef release() noexcept { return std::move(block_); }
  explicit operator bool() const noexcept { return block_ != nullptr; }

 private:
  void settle() noexcept {
    data_ = reinterpret_cast<Item*>(block_->data());
    room_ = (block_->capacity() - kPadding) / sizeof(Item);
  }

  BlockRef block_;
  Item* data_ = nullptr;
  size_t used_ = 0;
  size_t room_ = 0;
};

// A byte string that lies in the column's own data (block 0) or in a slab.
struct BytesView {
  const std::byte* data;  // null: at `offset` in the column's own data
  uint64_t offset;
  uint64_t length;
};

// Byte strings of at least this many bytes are viewed, not copied.
inline constexpr size_t kViewedBytes = 4096;

struct Column {
  Growing<int64_t> ints;
  Growing<float> floats;
  Growing<std::byte> data;
  Growing<int64_t> ends;     // of byte strings, in `data`; not kept up once there are views
  Growing<int64_t> offsets;  // of ragged rows, in values
  Growing<uint8_t> valid;    // only once a row is missing
  bool viewed = false;
  std::vector<BytesView> views;
  std::vector<BlockRef> slabs;  // that views point into
};

// Fills the column of one slot, row after row. It does not count the rows: who
// fills many columns side by side knows the number for all of them.
class ColumnBuilder {
 public:
  ColumnBuilder(const SlotSpec& spec, std::shared_ptr<Pool> pool);

  // Begins a new column.
  void start();
  // The column of so many rows; begin a new one before adding to it again.
  Column finish(size_t rows);

  // One row each; false where the values do not fit, and then `problem()` says why.
  // Values have kPadding readable bytes after them. `slab` is what they lie in, or
  // null: then everything is copied.
  bool add_packed_ints(const std::byte* at, size_t bytes) {
    if (scalar_) [[likely]] {
      column_.ints.reserve(*pool_, 1);
      if (decode_varint(at, bytes, *column_.ints.end())) [[likely]] {
        column_.ints.grow_by(1);
        return true;
      }
    }
    return add_int_list(at, bytes);
  }

  bool add_packed_floats(const std::byte* at, size_t bytes) {
    if (scalar_ && bytes == 4) [[likely]] {
      column_.floats.reserve(*pool_, 1);
      column_.floats.push(std::bit_cast<float>(load_le<uint32_t>(at)));
      return true;
    }
    return add_float_list(at, bytes);
  }

  bool add_one_bytes(const std::byte* at, size_t bytes, const BlockRef& slab) {
    if (short_strings_ && bytes <= 16) [[likely]] {
      // Sixteen bytes are copied whatever the length: the next string covers the rest.
      column_.data.reserve(*pool_, 16);
      std::memcpy(column_.data.end(), at, 16);
      column_.data.grow_by(bytes);
      column_.ends.reserve(*pool_, 1);
      column_.ends.push(static_cast<int64_t>(column_.data.size()));
      return true;
    }
    return add_any_bytes({at, bytes}, slab);
  }

  bool add_bytes_list(Bytes list, const BlockRef& slab);
  bool add_feature(const FeatureView& feature, size_t row, const BlockRef& slab);
  // The default, or a hole at `row`.
  bool add_missing(size_t row);

  const Problem& problem() const noexcept { return problem_; }

  // Undoes rows from the end.
  void cut_to(size_t rows) noexcept;

 private:
  bool fits(size_t values) const noexcept {
    if (!spec_->ragged) return values == count_;
    return count_ == 0 ? values == 0 : values % count_ == 0;
  }
  bool refuse(Problem problem) noexcept {
    problem_ = problem;
    return false;
  }
  bool wrong_count(size_t values) noexcept {
    return refuse({Fault::wrong_count, 0, count_, values});
  }
  bool add_int_list(const std::byte* at, size_t bytes);
  bool add_float_list(const std::byte* at, size_t bytes);
  bool add_any_bytes(Bytes value, const BlockRef& slab);
  void end_row(size_t values);
  void push_bytes(Bytes value, const BlockRef& slab);
  void view_from_now_on();
  void extend_valid(size_t rows);

  const SlotSpec* spec_;
  size_t count_;
  bool scalar_;         // exactly one value a row
  bool short_strings_;  // and bytes that need no check, in one buffer so far
  bool utf8_;
  std::shared_ptr<Pool> pool_;
  Column column_;
  Problem problem_;
};

}  // namespace rekord

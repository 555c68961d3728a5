// The columns of one batch while it is being filled.
//
//     dense numbers    values: rows × count
//     ragged numbers   values, and offsets: rows + 1
//     dense bytes      data, and ends of the values: rows × count + 1; no ends if
//                      all values have one length
//     ragged bytes     the same, and offsets: rows + 1 (in values)
//
// All offsets are int64 and begin with 0. Long byte strings are not copied: they
// stay in the slab that was read, and the column keeps it alive (BytesView).
#pragma once

#include <algorithm>
#include <new>
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
    settle(0);
  }

  // Room for `more` items and kPadding bytes after them.
  void reserve(Pool& pool, size_t more) {
    if (more <= room()) [[likely]]
      return;
    grow(pool, more);
  }

  Item* data() noexcept { return begin_; }
  const Item* data() const noexcept { return begin_; }
  Item* end() noexcept { return end_; }
  size_t size() const noexcept { return static_cast<size_t>(end_ - begin_); }
  size_t room() const noexcept { return static_cast<size_t>(limit_ - end_); }
  void grow_by(size_t items) noexcept { end_ += items; }
  void cut_to(size_t items) noexcept { end_ = begin_ + items; }
  void push(Item item) noexcept { *end_++ = item; }
  Item back() const noexcept { return end_[-1]; }
  const BlockRef& block() const noexcept { return block_; }
  BlockRef release() noexcept { return std::move(block_); }
  explicit operator bool() const noexcept { return block_ != nullptr; }

 private:
  void grow(Pool& pool, size_t more) {
    const size_t used = size();
    // A schema may declare more values than there are addresses.
    if (more > kMostBlockBytes / sizeof(Item) - used) throw std::bad_alloc();
    const size_t needed = (used + more) * sizeof(Item) + kPadding;
    BlockRef bigger = pool.acquire(block_ ? std::max(needed, block_->capacity() * 2) : needed);
    if (used != 0) std::memcpy(bigger->data(), block_->data(), used * sizeof(Item));
    block_ = std::move(bigger);
    settle(used);
  }

  void settle(size_t used) noexcept {
    begin_ = reinterpret_cast<Item*>(block_->data());
    end_ = begin_ + used;
    limit_ = begin_ + (block_->capacity() - kPadding) / sizeof(Item);
  }

  Item* begin_ = nullptr;
  Item* end_ = nullptr;
  Item* limit_ = nullptr;
  BlockRef block_;
};

// A byte string in the column's own data (block 0) or in a slab.
struct BytesView {
  const std::byte* data;  // null: at `offset` in the column's own data
  uint64_t offset;
  uint64_t length;
};

// Byte strings of at least this many bytes are viewed, not copied.
inline constexpr size_t kViewedBytes = 4096;

struct Column {
  Growing<std::byte> data;
  // Of byte strings, in `data`. None while all of them have one length, and not kept up
  // once there are views.
  Growing<int64_t> ends;
  size_t even = 0;   // byte strings while there are no ends, and no views
  size_t width = 0;  // of each of these
  Growing<int64_t> ints;
  Growing<float> floats;
  Growing<int64_t> offsets;  // of ragged rows, in values
  Growing<uint8_t> valid;    // only once a row is missing
  bool viewed = false;
  std::vector<BytesView> views;
  std::vector<BlockRef> slabs;  // that views point into

  size_t strings() const noexcept { return viewed ? views.size() : ends ? ends.size() - 1 : even; }
  Bytes string(size_t index) const noexcept {
    if (viewed) {
      const BytesView& view = views[index];
      return {view.data != nullptr ? view.data : data.data() + view.offset,
              static_cast<size_t>(view.length)};
    }
    if (!ends) return {data.data() + index * width, width};
    const int64_t* at = ends.data() + index;
    return {data.data() + at[0], static_cast<size_t>(at[1] - at[0])};
  }
};

// Writes the ends of `count` strings of `width` bytes: count + 1 numbers.
inline void write_even_ends(int64_t* to, size_t count, size_t width) noexcept {
  for (size_t i = 0; i <= count; ++i) to[i] = static_cast<int64_t>(i * width);
}

// Where the value of one slot is in one record: nowhere, in one range of bytes, or
// in the several values of a BytesList.
struct Cell {
  static constexpr size_t kList = ~(~size_t{0} >> 1);

  const std::byte* at = nullptr;
  size_t bytes_and_form = 0;

  size_t bytes() const noexcept { return bytes_and_form & ~kList; }
  bool list() const noexcept { return (bytes_and_form & kList) != 0; }
};

// Fills the column of one slot, row after row. It does not count the rows: the
// caller fills many columns together and knows the number for all of them.
class ColumnBuilder {
 public:
  // `columns` are filled together: the more, the less memory each begins with.
  ColumnBuilder(const SlotSpec& spec, std::shared_ptr<Pool> pool, size_t columns);

  // Begins a new column.
  void start();
  // The column of this many rows; begin a new one before adding to it again.
  Column finish(size_t rows);

  // Adds `count` rows from `row` on, one from every `stride`-th cell; false if a
  // value does not fit. Values have kPadding readable bytes after them. `slab` is
  // the block that contains them, or null: then everything is copied.
  bool add_cells(const Cell* cells, size_t stride, size_t count, size_t row, const BlockRef& slab);
  // Adds one row; false if the values do not fit, and then `problem()` has the reason.
  bool add_feature(const FeatureView& feature, size_t row, const BlockRef& slab);
  // Adds one row of `count` values that a writer has: int64_t, float or Bytes. Strings are
  // copied, and assumed to be valid UTF-8.
  bool add_values(const void* values, size_t count, size_t row);
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
  // Many rows of exactly one value; they return the number of rows added before an
  // exceptional cell.
  size_t add_one_int_each(const Cell* cells, size_t stride, size_t count);
  size_t add_one_float_each(const Cell* cells, size_t stride, size_t count);
  size_t add_short_bytes_each(const Cell* cells, size_t stride, size_t count);
  bool add_cell(const Cell& cell, size_t row, const BlockRef& slab);
  bool add_packed_ints(const std::byte* at, size_t bytes);
  bool add_packed_floats(const std::byte* at, size_t bytes);
  bool add_one_bytes(Bytes value, const BlockRef& slab);
  bool add_bytes_list(Bytes list, const BlockRef& slab);
  bool add_empty(size_t row);
  void end_row(size_t values);
  void push_bytes(Bytes value, const BlockRef& slab);
  void view_from_now_on();
  // From now on strings may have any length.
  void keep_ends();
  void extend_valid(size_t rows);

  // The sizes of the columns before this one: the next one has room for as much from
  // the start, since growing step by step would move everything twice.
  struct Sizes {
    size_t values;
    size_t bytes;
    size_t rows;
  };

  static Sizes first_sizes(size_t columns) noexcept;

  const SlotSpec* spec_;
  size_t count_;
  bool scalar_;  // exactly one value per row
  Sizes first_;  // what a new column has room for at first
  Sizes usual_;
  std::shared_ptr<Pool> pool_;
  Column column_;
  Problem problem_;
};

}  // namespace rekord

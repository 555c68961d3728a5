// Byte strings of a batch as Python sees them.
#pragma once

#include <nanobind/nanobind.h>

#include "columns.h"

namespace rekord {

// Many byte strings: end to end in one buffer, or wherever they were read to.
class StringColumn {
 public:
  // Of a finished column; takes its buffers.
  explicit StringColumn(Column& column);
  // Of `count` strings in `data`, the first from ends[0] to ends[1].
  StringColumn(BlockRef data, BlockRef ends, size_t count) noexcept;

  size_t size() const noexcept { return count_; }
  bool packed() const noexcept { return views_.empty(); }
  // Here in the header because most strings are a few bytes: a call would cost more than its use.
  Bytes at(size_t index) const noexcept {
    if (!views_.empty()) {
      const BytesView& view = views_[index];
      const std::byte* begin = view.data != nullptr ? view.data : data_->data() + view.offset;
      return {begin, static_cast<size_t>(view.length)};
    }
    if (even_) return {data_->data() + index * width_, width_};
    const auto* ends = reinterpret_cast<const int64_t*>(ends_->data());
    return {data_->data() + ends[index], static_cast<size_t>(ends[index + 1] - ends[index])};
  }
  uint64_t total_bytes() const noexcept;
  // The same strings, end to end.
  StringColumn pack(Pool& pool) const;

  const BlockRef& data() const noexcept { return data_; }
  // Written on first use, if all strings have one length. Needs the GIL.
  const BlockRef& ends() const;

 private:
  BlockRef data_;
  mutable BlockRef ends_;
  bool even_ = false;  // all strings have `width_` bytes
  size_t width_ = 0;
  std::vector<BytesView> views_;
  std::vector<BlockRef> slabs_;
  size_t count_ = 0;
};

}  // namespace rekord

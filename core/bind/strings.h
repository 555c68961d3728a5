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
  Bytes at(size_t index) const noexcept;
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

#include "bind/strings.h"

namespace rekord {

StringColumn::StringColumn(Column& column)
    : even_(!column.ends), width_(column.width), count_(column.strings()) {
  data_ = column.data.release();
  ends_ = column.ends.release();
  views_ = std::move(column.views);
  slabs_ = std::move(column.slabs);
}

StringColumn::StringColumn(BlockRef data, BlockRef ends, size_t count) noexcept
    : data_(std::move(data)), ends_(std::move(ends)), count_(count) {}

const BlockRef& StringColumn::ends() const {
  if (even_ && ends_ == nullptr) {
    BlockRef ends = data_->home().acquire((count_ + 1) * sizeof(int64_t));
    write_even_ends(reinterpret_cast<int64_t*>(ends->data()), count_, width_);
    ends_ = std::move(ends);
  }
  return ends_;
}

uint64_t StringColumn::total_bytes() const noexcept {
  uint64_t total = 0;
  for (size_t i = 0; i < count_; ++i) total += at(i).size();
  return total;
}

StringColumn StringColumn::pack(Pool& pool) const {
  BlockRef data = pool.acquire(static_cast<size_t>(total_bytes()));
  BlockRef ends = pool.acquire((count_ + 1) * sizeof(int64_t));
  auto* end = reinterpret_cast<int64_t*>(ends->data());
  int64_t used = 0;
  end[0] = 0;
  for (size_t i = 0; i < count_; ++i) {
    const Bytes value = at(i);
    if (!value.empty()) std::memcpy(data->data() + used, value.data(), value.size());
    used += static_cast<int64_t>(value.size());
    end[i + 1] = used;
  }
  return StringColumn(std::move(data), std::move(ends), count_);
}

}  // namespace rekord

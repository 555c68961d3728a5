#include "columns.h"

#include <algorithm>
#include <span>

namespace rekord {
namespace {

// What new columns have room for together; few are given no more than they can use.
constexpr size_t kFirstRowsOfAll = 64 * 1024;
constexpr size_t kFirstBytesOfAll = 1024 * 1024;
constexpr size_t kFirstRows = 1024;
constexpr size_t kFirstBytes = 16 * 1024;
constexpr size_t kLeastRows = 16;
constexpr size_t kLeastBytes = 256;

}  // namespace

ColumnBuilder::Sizes ColumnBuilder::first_sizes(size_t columns) noexcept {
  columns = std::max<size_t>(columns, 1);
  const size_t rows = std::clamp(kFirstRowsOfAll / columns, kLeastRows, kFirstRows);
  return {rows, std::clamp(kFirstBytesOfAll / columns, kLeastBytes, kFirstBytes), rows};
}

ColumnBuilder::ColumnBuilder(const SlotSpec& spec, std::shared_ptr<Pool> pool, size_t columns)
    : spec_(&spec),
      count_(static_cast<size_t>(spec.count)),
      scalar_(!spec.ragged && spec.count == 1),
      first_(first_sizes(columns)),
      usual_(first_),
      pool_(std::move(pool)) {}

void ColumnBuilder::start() {
  column_ = Column{};
  switch (spec_->kind) {
    case Kind::ints:
      column_.ints.start(*pool_, usual_.values);
      break;
    case Kind::floats:
      column_.floats.start(*pool_, usual_.values);
      break;
    default:
      column_.data.start(*pool_, usual_.bytes);
  }
  if (spec_->ragged) {
    column_.offsets.start(*pool_, usual_.rows + 1);
    column_.offsets.push(0);
  }
}

Column ColumnBuilder::finish(size_t rows) {
  if (column_.valid) extend_valid(rows);
  // A little more than last time, so that small differences do not make it grow.
  const auto with_slack = [](size_t size) { return size + size / 16; };
  const size_t values = column_.ints.size() + column_.floats.size() + column_.strings();
  usual_.values = std::max(first_.values, with_slack(values));
  usual_.bytes = std::max(first_.bytes, with_slack(column_.data.size()));
  usual_.rows = std::max(first_.rows, rows);
  return std::move(column_);
}

void ColumnBuilder::end_row(size_t values) {
  if (!spec_->ragged) return;
  column_.offsets.reserve(*pool_, 1);
  column_.offsets.push(column_.offsets.back() + static_cast<int64_t>(values));
}

size_t ColumnBuilder::add_one_int_each(const Cell* cells, size_t stride, size_t count) {
  column_.ints.reserve(*pool_, count);
  int64_t* out = column_.ints.end();
  size_t done = 0;
  for (; done < count; ++done, cells += stride)
    if (cells->at == nullptr || !decode_varint(cells->at, cells->bytes_and_form, out[done])) break;
  column_.ints.grow_by(done);
  return done;
}

size_t ColumnBuilder::add_one_float_each(const Cell* cells, size_t stride, size_t count) {
  column_.floats.reserve(*pool_, count);
  float* out = column_.floats.end();
  size_t done = 0;
  for (; done < count; ++done, cells += stride) {
    if (cells->at == nullptr || cells->bytes_and_form != 4) break;
    out[done] = std::bit_cast<float>(load_le<uint32_t>(cells->at));
  }
  column_.floats.grow_by(done);
  return done;
}

size_t ColumnBuilder::add_short_bytes_each(const Cell* cells, size_t stride, size_t count) {
  // Sixteen bytes are copied whatever the length: the next string covers the rest.
  constexpr size_t kShort = 16;
  column_.data.reserve(*pool_, count * kShort);
  std::byte* const begin = column_.data.data();
  std::byte* to = column_.data.end();
  size_t done = 0;
  if (!column_.ends) {
    const size_t width = column_.even != 0 ? column_.width : cells->bytes_and_form;
    if (width > kShort) return 0;
    for (; done < count; ++done, cells += stride) {
      if (cells->at == nullptr || cells->bytes_and_form != width) break;
      std::memcpy(to, cells->at, kShort);
      to += width;
    }
    column_.data.cut_to(static_cast<size_t>(to - begin));
    column_.even += done;
    column_.width = width;
    if (done == count || cells->at == nullptr) return done;
    keep_ends();
  }
  column_.ends.reserve(*pool_, count);
  int64_t* ends = column_.ends.end() - done;
  const size_t before = done;
  for (; done < count; ++done, cells += stride) {
    const size_t bytes = cells->bytes_and_form;
    if (cells->at == nullptr || bytes > kShort) break;
    std::memcpy(to, cells->at, kShort);
    to += bytes;
    ends[done] = to - begin;
  }
  column_.data.cut_to(static_cast<size_t>(to - begin));
  column_.ends.grow_by(done - before);
  return done;
}

bool ColumnBuilder::add_cells(const Cell* cells, size_t stride, size_t count, size_t row,
                              const BlockRef& slab) {
  size_t done = 0;
  while (done < count) {
    const Cell* next = cells + done * stride;
    if (scalar_) {
      if (spec_->kind == Kind::ints)
        done += add_one_int_each(next, stride, count - done);
      else if (spec_->kind == Kind::floats)
        done += add_one_float_each(next, stride, count - done);
      else if (!spec_->utf8 && !column_.viewed)
        done += add_short_bytes_each(next, stride, count - done);
      if (done == count) break;
      next = cells + done * stride;
    }
    if (!add_cell(*next, row + done, slab)) return false;
    ++done;
  }
  return true;
}

bool ColumnBuilder::add_cell(const Cell& cell, size_t row, const BlockRef& slab) {
  if (cell.at == nullptr) return add_missing(row);
  if (spec_->kind == Kind::bytes)
    return cell.list() ? add_bytes_list({cell.at, cell.bytes()}, slab)
                       : add_one_bytes({cell.at, cell.bytes()}, slab);
  if (cell.bytes() == 0) return add_empty(row);
  return spec_->kind == Kind::ints ? add_packed_ints(cell.at, cell.bytes())
                                   : add_packed_floats(cell.at, cell.bytes());
}

bool ColumnBuilder::add_empty(size_t row) {
  if (fits(0)) {
    end_row(0);
    return true;
  }
  // Where exactly so many values are due, an empty list is a hole, if holes are allowed.
  const bool hole = spec_->missing == Missing::hole && spec_->empty_is_missing;
  return hole ? add_missing(row) : wrong_count(0);
}

bool ColumnBuilder::add_packed_ints(const std::byte* at, size_t bytes) {
  // One value a byte at the most, so the room is proven by the bytes.
  column_.ints.reserve(*pool_, bytes);
  const size_t values = decode_varints(at, bytes, column_.ints.end());
  if (values == kBadVarint) return refuse({Fault::varint, 0, 0, 0});
  if (!fits(values)) return wrong_count(values);
  column_.ints.grow_by(values);
  end_row(values);
  return true;
}

bool ColumnBuilder::add_packed_floats(const std::byte* at, size_t bytes) {
  if (bytes % 4 != 0) return refuse({Fault::packed_floats, 0, 4, bytes});
  const size_t values = bytes / 4;
  if (!fits(values)) return wrong_count(values);
  Growing<float>& out = column_.floats;
  out.reserve(*pool_, values);
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(out.end(), at, bytes);
  } else {
    for (size_t i = 0; i < values; ++i)
      out.end()[i] = std::bit_cast<float>(load_le<uint32_t>(at + 4 * i));
  }
  out.grow_by(values);
  end_row(values);
  return true;
}

void ColumnBuilder::keep_ends() {
  column_.ends.start(*pool_, std::max(usual_.values, column_.even) + 1);
  write_even_ends(column_.ends.data(), column_.even, column_.width);
  column_.ends.grow_by(column_.even + 1);
}

void ColumnBuilder::view_from_now_on() {
  const size_t count = column_.strings();
  column_.views.reserve(std::max<size_t>(count, 64));
  for (size_t i = 0; i < count; ++i) {
    const Bytes value = column_.string(i);
    column_.views.push_back(
        {nullptr, static_cast<uint64_t>(value.data() - column_.data.data()), value.size()});
  }
  column_.viewed = true;
}

void ColumnBuilder::push_bytes(Bytes value, const BlockRef& slab) {
  if (value.size() >= kViewedBytes && slab != nullptr) {
    if (!column_.viewed) view_from_now_on();
    if (column_.slabs.empty() || column_.slabs.back() != slab) column_.slabs.push_back(slab);
    column_.views.push_back({value.data(), 0, value.size()});
    return;
  }
  column_.data.reserve(*pool_, value.size());
  if (!value.empty()) std::memcpy(column_.data.end(), value.data(), value.size());
  if (column_.viewed) column_.views.push_back({nullptr, column_.data.size(), value.size()});
  column_.data.grow_by(value.size());
  if (column_.viewed) return;
  if (!column_.ends) {
    if (column_.even == 0 || column_.width == value.size()) {
      column_.width = value.size();
      ++column_.even;
      return;
    }
    keep_ends();
  }
  column_.ends.reserve(*pool_, 1);
  column_.ends.push(static_cast<int64_t>(column_.data.size()));
}

bool ColumnBuilder::add_one_bytes(Bytes value, const BlockRef& slab) {
  if (!fits(1)) return wrong_count(1);
  if (spec_->utf8 && !is_utf8(value)) return refuse({Fault::not_utf8, 0, 0, 0});
  push_bytes(value, slab);
  end_row(1);
  return true;
}

bool ColumnBuilder::add_bytes_list(Bytes list, const BlockRef& slab) {
  // Checked from end to end first, so that a refusal leaves nothing behind.
  Reader reader(list, list.data());
  Tag tag{};
  Bytes value;
  size_t values = 0;
  while (!reader.done()) {
    if (Problem problem = reader.tag(tag)) return refuse(problem);
    // Anything but values, in tags of one byte, is odd: the general reader sees to it.
    if (tag.raw != 0x0a || tag.padded) return refuse({Fault::tag, 0, 0, 0});
    if (Problem problem = reader.bytes(value)) return refuse(problem);
    if (spec_->utf8 && !is_utf8(value)) return refuse({Fault::not_utf8, 0, 0, 0});
    ++values;
  }
  if (!fits(values)) return wrong_count(values);
  for_each_bytes_of(list, [&](Bytes each) { push_bytes(each, slab); });
  end_row(values);
  return true;
}

bool ColumnBuilder::add_feature(const FeatureView& feature, size_t row, const BlockRef& slab) {
  if (feature.kind == Kind::unset) return add_missing(row);
  if (feature.kind != spec_->kind)
    return refuse({Fault::wrong_kind, 0, static_cast<uint64_t>(spec_->kind),
                   static_cast<uint64_t>(feature.kind)});
  if (feature.count == 0) return add_empty(row);
  if (!fits(feature.count)) return wrong_count(feature.count);
  switch (feature.kind) {
    case Kind::ints:
      column_.ints.reserve(*pool_, feature.count);
      copy_ints(feature, {column_.ints.end(), feature.count});
      column_.ints.grow_by(feature.count);
      break;
    case Kind::floats:
      column_.floats.reserve(*pool_, feature.count);
      copy_floats(feature, {column_.floats.end(), feature.count});
      column_.floats.grow_by(feature.count);
      break;
    default: {
      bool text = true;
      if (spec_->utf8) for_each_bytes(feature, [&](Bytes value) { text = text && is_utf8(value); });
      if (!text) return refuse({Fault::not_utf8, 0, 0, 0});
      for_each_bytes(feature, [&](Bytes value) { push_bytes(value, slab); });
    }
  }
  end_row(feature.count);
  return true;
}

bool ColumnBuilder::add_values(const void* values, size_t count, size_t row) {
  if (count == 0) return add_empty(row);
  if (!fits(count)) return wrong_count(count);
  const auto copy = [&]<class Item>(Growing<Item>& out) {
    out.reserve(*pool_, count);
    std::memcpy(out.end(), values, count * sizeof(Item));
    out.grow_by(count);
  };
  if (spec_->kind == Kind::ints) {
    copy(column_.ints);
  } else if (spec_->kind == Kind::floats) {
    copy(column_.floats);
  } else {
    for (const Bytes& value : std::span(static_cast<const Bytes*>(values), count))
      push_bytes(value, nullptr);
  }
  end_row(count);
  return true;
}

void ColumnBuilder::extend_valid(size_t rows) {
  const size_t have = column_.valid.size();
  if (rows <= have) return;
  column_.valid.reserve(*pool_, rows - have);
  std::memset(column_.valid.end(), 1, rows - have);
  column_.valid.grow_by(rows - have);
}

bool ColumnBuilder::add_missing(size_t row) {
  if (spec_->missing == Missing::refuse) return refuse({Fault::missing, 0, 0, 0});
  if (spec_->missing == Missing::hole) {
    if (!column_.valid) column_.valid.start(*pool_, std::max(first_.rows, row + 1));
    extend_valid(row);
    column_.valid.reserve(*pool_, 1);
    column_.valid.push(0);
  }
  const bool defaulted = spec_->missing == Missing::fill;
  size_t values = spec_->ragged ? 0 : count_;
  switch (spec_->kind) {
    case Kind::ints:
      if (defaulted) values = spec_->fill_ints.size();
      column_.ints.reserve(*pool_, values);
      for (size_t i = 0; i < values; ++i) column_.ints.push(defaulted ? spec_->fill_ints[i] : 0);
      break;
    case Kind::floats:
      if (defaulted) values = spec_->fill_floats.size();
      column_.floats.reserve(*pool_, values);
      for (size_t i = 0; i < values; ++i)
        column_.floats.push(defaulted ? spec_->fill_floats[i] : 0.0f);
      break;
    default:
      if (defaulted) values = spec_->fill_bytes.size();
      for (size_t i = 0; i < values; ++i) {
        const std::string_view value = defaulted ? spec_->fill_bytes[i] : std::string_view();
        push_bytes({reinterpret_cast<const std::byte*>(value.data()), value.size()}, nullptr);
      }
  }
  end_row(values);
  return true;
}

void ColumnBuilder::cut_to(size_t rows) noexcept {
  size_t values = rows * count_;
  if (spec_->ragged) {
    if (column_.offsets.size() <= rows + 1) return;
    column_.offsets.cut_to(rows + 1);
    values = static_cast<size_t>(column_.offsets.back());
  }
  if (column_.ints.size() > values) column_.ints.cut_to(values);
  if (column_.floats.size() > values) column_.floats.cut_to(values);
  if (column_.viewed) {
    // Ends are not kept up any more: they say nothing about where the data ends.
    if (column_.views.size() > values) column_.views.resize(values);
  } else if (!column_.ends) {
    column_.even = std::min(column_.even, values);
    column_.data.cut_to(column_.even * column_.width);
  } else if (column_.ends.size() > values + 1) {
    column_.ends.cut_to(values + 1);
    column_.data.cut_to(static_cast<size_t>(column_.ends.back()));
  }
  if (column_.valid.size() > rows) column_.valid.cut_to(rows);
}

}  // namespace rekord

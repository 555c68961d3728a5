#include "encode.h"

#include <algorithm>
#include <bit>

#include "crc32c.h"
#include "frame.h"

namespace rekord {
namespace {

constexpr size_t kLongestVarint = 10;
// Tags and lengths of an entry around its key and its values.
constexpr size_t kMostHeader = 64;

size_t varint_bytes(uint64_t value) noexcept {
  // Seven bits a byte: 9/64 is a little less than 1/7, and right for all 64 widths.
  return (static_cast<size_t>(std::bit_width(value | 1)) * 9 + 64) / 64;
}

// The 7-bit groups of 56 bits, a byte each: what join_groups undoes.
uint64_t split_groups(uint64_t x) noexcept {
  x = (x & 0x0fffffffu) | ((x & 0x00fffffff0000000u) << 4);
  x = (x & 0x00003fff00003fffu) | ((x & 0x0fffc0000fffc000u) << 2);
  return (x & 0x007f007f007f007fu) | ((x & 0x3f803f803f803f80u) << 1);
}

// Writes up to ten bytes, whatever the value needs; gives the end of what it needs.
std::byte* put_varint(std::byte* at, uint64_t value) noexcept {
  if (value < 0x80) {
    *at = static_cast<std::byte>(value);
    return at + 1;
  }
  const size_t bytes = varint_bytes(value);
  uint64_t word = split_groups(value);
  if (bytes <= 8) [[likely]] {
    word |= kTopBits & ((uint64_t{1} << (8 * (bytes - 1))) - 1);
    store_le<uint64_t>(at, word);
    return at + bytes;
  }
  store_le<uint64_t>(at, word | kTopBits);
  const bool ten = bytes == 10;
  at[8] = static_cast<std::byte>((value >> 56 & 0x7f) | (ten ? 0x80 : 0));
  at[9] = std::byte{1};
  return at + bytes;
}

std::byte* put_byte(std::byte* at, unsigned value) noexcept {
  *at = static_cast<std::byte>(value);
  return at + 1;
}

// `out` has room for kLongestVarint bytes a value.
std::byte* put_varints(std::byte* at, const int64_t* values, size_t count) noexcept {
  const int64_t* const end = values + count;
  while (end - values >= 8) {
    uint64_t any = 0;
    for (int i = 0; i < 8; ++i) any |= static_cast<uint64_t>(values[i]);
    if (any < 0x80) {
      uint64_t word = 0;
      for (int i = 0; i < 8; ++i) word |= static_cast<uint64_t>(values[i]) << (8 * i);
      store_le<uint64_t>(at, word);
      at += 8;
    } else if (any >> 56 == 0) {
      // Without a branch on how long each one is: lengths that vary cannot be foretold.
      for (int i = 0; i < 8; ++i) {
        const auto value = static_cast<uint64_t>(values[i]);
        const size_t bytes = varint_bytes(value);
        store_le<uint64_t>(
            at, split_groups(value) | (kTopBits & ((uint64_t{1} << (8 * (bytes - 1))) - 1)));
        at += bytes;
      }
    } else {
      for (int i = 0; i < 8; ++i) at = put_varint(at, static_cast<uint64_t>(values[i]));
    }
    values += 8;
  }
  for (; values != end; ++values) at = put_varint(at, static_cast<uint64_t>(*values));
  return at;
}

size_t varints_bytes(const int64_t* values, size_t count) noexcept {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i) bytes += varint_bytes(static_cast<uint64_t>(values[i]));
  return bytes;
}

std::byte* put_floats(std::byte* at, const float* values, size_t count) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(at, values, count * sizeof(float));
  } else {
    for (size_t i = 0; i < count; ++i)
      store_le<uint32_t>(at + 4 * i, std::bit_cast<uint32_t>(values[i]));
  }
  return at + count * sizeof(float);
}

// Short strings without a call. There is room for eight bytes more than needed at `at`.
std::byte* put_bytes(std::byte* at, const std::byte* from, size_t count) noexcept {
  if (count > 16) {
    std::memcpy(at, from, count);
  } else if (count >= 8) {
    const auto first = load_le<uint64_t>(from);
    const auto last = load_le<uint64_t>(from + count - 8);
    store_le<uint64_t>(at, first);
    store_le<uint64_t>(at + count - 8, last);
  } else if (count >= 4) {
    const auto first = load_le<uint32_t>(from);
    const auto last = load_le<uint32_t>(from + count - 4);
    store_le<uint32_t>(at, first);
    store_le<uint32_t>(at + count - 4, last);
  } else {
    for (size_t i = 0; i < count; ++i) at[i] = from[i];
  }
  return at + count;
}

const int64_t* ints_of(const SlotValues& cell) noexcept {
  return static_cast<const int64_t*>(cell.values);
}
const float* floats_of(const SlotValues& cell) noexcept {
  return static_cast<const float*>(cell.values);
}
const Bytes* strings_of(const SlotValues& cell) noexcept {
  return static_cast<const Bytes*>(cell.values);
}

size_t strings_bytes(const Bytes* strings, size_t count) noexcept {
  size_t bytes = 0;
  for (size_t i = 0; i < count; ++i)
    bytes += 1 + varint_bytes(strings[i].size()) + strings[i].size();
  return bytes;
}

std::byte* put_strings(std::byte* at, const Bytes* strings, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) {
    at = put_byte(at, 0x0a);
    at = put_varint(at, strings[i].size());
    at = put_bytes(at, strings[i].data(), strings[i].size());
  }
  return at;
}

// How many bytes a length and its tag need.
size_t with_tag(size_t bytes) noexcept { return 1 + varint_bytes(bytes); }

// Everything before the values of a list that takes `list` bytes (L), of which numbers
// have `packed` in their one chunk (P).
struct LongHeader {
  size_t list;
  size_t packed;
  bool chunk;
  size_t feature;
  size_t entry;
  size_t bytes;

  static LongHeader of_numbers(std::string_view key, size_t packed) noexcept {
    return {key, with_tag(packed) + packed, packed, true};
  }
  static LongHeader of_list(std::string_view key, size_t list) noexcept {
    return {key, list, 0, false};
  }

  std::byte* put(std::byte* at, std::string_view key, Kind kind) const noexcept {
    at = put_varint(put_byte(at, 0x0a), entry);
    at = put_varint(put_byte(at, 0x0a), key.size());
    at = put_bytes(at, reinterpret_cast<const std::byte*>(key.data()), key.size());
    at = put_varint(put_byte(at, 0x12), feature);
    at = put_varint(put_byte(at, static_cast<unsigned>(kind) << 3 | 2), list);
    return chunk ? put_varint(put_byte(at, 0x0a), packed) : at;
  }

 private:
  LongHeader(std::string_view key, size_t l, size_t p, bool c) noexcept
      : list(l),
        packed(p),
        chunk(c),
        feature(with_tag(l) + l),
        entry(with_tag(key.size()) + key.size() + with_tag(feature) + feature),
        bytes(with_tag(entry) + with_tag(key.size()) + key.size() + with_tag(feature) +
              with_tag(l) + (c ? with_tag(p) : 0)) {}
};

// A length that is only known once what it measures has been written.
class LateLength {
 public:
  // Leaves room for the tag and `width` bytes of length.
  LateLength(unsigned tag, size_t& width, Growing<std::byte>& out, Pool& pool)
      : width_(width), out_(out), pool_(pool) {
    out.reserve(pool, 1 + kLongestVarint);
    *out.end() = static_cast<std::byte>(tag);
    begin_ = out.size() + 1;
    out.grow_by(1 + width);
  }

  void finish() {
    const size_t length = out_.size() - begin_ - width_;
    const size_t needed = varint_bytes(length);
    if (needed != width_) [[unlikely]] {
      out_.reserve(pool_, kLongestVarint);
      std::byte* at = out_.data() + begin_;
      std::memmove(at + needed, at + width_, length);
      out_.cut_to(begin_ + needed + length);
      width_ = needed;
    }
    // Byte for byte: a wider store would reach into what stands behind.
    std::byte* at = out_.data() + begin_;
    size_t left = length;
    for (; left >= 0x80; left >>= 7) at = put_byte(at, (left & 0x7f) | 0x80);
    put_byte(at, static_cast<unsigned>(left));
  }

 private:
  size_t& width_;
  Growing<std::byte>& out_;
  Pool& pool_;
  size_t begin_;
};

}  // namespace

WrittenColumns::WrittenColumns(std::shared_ptr<const Plan> plan, std::shared_ptr<Pool> pool)
    : plan_(std::move(plan)) {
  for (const SlotSpec& spec : plan_->slots())
    builders_.emplace_back(spec, pool, plan_->slots().size());
  start();
}

void WrittenColumns::start() {
  for (size_t i = 0; i < builders_.size(); ++i)
    if (!plan_->slots()[i].skip) builders_[i].start();
  rows_ = 0;
}

bool WrittenColumns::add(const SlotValues* cells) {
  for (size_t i = 0; i < builders_.size(); ++i) {
    if (plan_->slots()[i].skip) continue;
    const SlotValues& cell = cells[i];
    if (!(cell.present ? builders_[i].add_values(cell.values, cell.count, rows_)
                       : builders_[i].add_missing(rows_)))
      return false;
  }
  ++rows_;
  return true;
}

std::vector<Column> WrittenColumns::take() {
  std::vector<Column> columns;
  columns.reserve(builders_.size());
  for (ColumnBuilder& builder : builders_) columns.push_back(builder.finish(rows_));
  start();
  return columns;
}

RecordWriter::RecordWriter(std::shared_ptr<const Plan> features, std::shared_ptr<const Plan> steps)
    : features_plan_(std::move(features)),
      steps_plan_(std::move(steps)),
      lanes_(lanes_of(*features_plan_)) {
  if (steps_plan_) step_lanes_ = lanes_of(*steps_plan_);
}

std::vector<RecordWriter::Lane> RecordWriter::lanes_of(const Plan& plan) {
  std::vector<Lane> lanes;
  for (uint32_t slot = 0; slot < plan.slots().size(); ++slot) {
    const SlotSpec& spec = plan.slots()[slot];
    const Header& header = plan.headers()[slot];
    Lane lane;
    lane.key = spec.key;
    lane.slot = slot;
    lane.kind = spec.kind;
    // A header that does not fit its words is always written in full.
    if (header.size() == spec.key.size() + 10) {
      lane.short_bytes = static_cast<uint32_t>(header.size());
      lane.words = static_cast<uint32_t>(header.last_word()) + 1;
      lane.limit = 128 - (spec.key.size() + 8);
      std::array<uint64_t, Header::kMostWords> one{};
      header.expect(0, lane.base);
      header.expect(1, one);
      for (size_t i = 0; i < lane.words; ++i) lane.step[i] = one[i] - lane.base[i];
    }
    lane.guess = LongHeader::of_numbers(lane.key, 1).bytes;
    lanes.push_back(lane);
  }
  // By bytes: char compares as unsigned in a string_view, as UTF-8 wants it.
  std::sort(lanes.begin(), lanes.end(), [](const Lane& a, const Lane& b) { return a.key < b.key; });
  return lanes;
}

bool RecordWriter::add(const SlotValues* cells, const StepValues* steps, bool framed,
                       Growing<std::byte>& out, Pool& pool, size_t* located) {
  const size_t begin = out.size();
  if (framed) {
    out.reserve(pool, kHeaderBytes);
    out.grow_by(kHeaderBytes);
  }
  const size_t payload = out.size();
  features(cells, out, pool, located);
  if (steps_plan_) feature_lists(steps, out, pool);
  const size_t length = out.size() - payload;
  if (length > kLargestPayload) {
    out.cut_to(begin);
    return false;
  }
  if (framed) {
    out.reserve(pool, kFooterBytes);
    const CrcImplementation& crc = CrcImplementation::best();
    std::byte* frame = out.data() + begin;
    store_le<uint64_t>(frame, length);
    store_le<uint32_t>(frame + 8, mask_crc(crc.u64(length)));
    store_le<uint32_t>(out.end(), mask_crc(crc.extend(0, frame + kHeaderBytes, length)));
    out.grow_by(kFooterBytes);
  }
  return true;
}

void RecordWriter::features(const SlotValues* cells, Growing<std::byte>& out, Pool& pool,
                            size_t* located) {
  LateLength length(0x0a, features_width_, out, pool);
  const size_t slot = located != nullptr ? *located : lanes_.size();
  size_t string_end = 0;
  for (Lane& lane : lanes_) {
    const SlotValues& cell = cells[lane.slot];
    if (cell.present) entry(lane, cell, out, pool);
    if (lane.slot == slot) string_end = out.size();
  }
  // The length may move everything behind it: what stays the same is the way to the end.
  const size_t rest = out.size() - string_end;
  length.finish();
  if (located != nullptr) *located = out.size() - rest - strings_of(cells[slot])->size();
}

void RecordWriter::entry(Lane& lane, const SlotValues& cell, Growing<std::byte>& out, Pool& pool) {
  size_t packed = 0;
  switch (lane.kind) {
    case Kind::ints:
      if (cell.count > 1) return many_ints(lane, cell, out, pool);
      if (cell.count == 1) packed = varint_bytes(static_cast<uint64_t>(*ints_of(cell)));
      break;
    case Kind::floats:
      packed = cell.count * sizeof(float);
      break;
    default:
      if (cell.count != 1) return many_bytes(lane, cell, out, pool);
      packed = strings_of(cell)->size();
  }
  out.reserve(pool, kMostHeader + lane.key.size() + packed + kLongestVarint);
  std::byte* at = out.end();
  // No number at all makes no chunk, while one empty string is a value.
  if (packed < lane.limit && (packed != 0 || lane.kind == Kind::bytes)) [[likely]] {
    for (size_t i = 0; i < lane.words; ++i)
      store_le<uint64_t>(at + 8 * i, lane.base[i] + packed * lane.step[i]);
    at += lane.short_bytes;
  } else if (cell.count == 0) {
    at = LongHeader::of_list(lane.key, 0).put(at, lane.key, lane.kind);
  } else {
    at = LongHeader::of_numbers(lane.key, packed).put(at, lane.key, lane.kind);
  }
  switch (lane.kind) {
    case Kind::ints:
      if (cell.count == 1) at = put_varint(at, static_cast<uint64_t>(*ints_of(cell)));
      break;
    case Kind::floats:
      if (cell.count == 1)
        at = put_floats(at, floats_of(cell), 1);
      else if (cell.count != 0)
        at = put_floats(at, floats_of(cell), cell.count);
      break;
    default:
      at = put_bytes(at, strings_of(cell)->data(), packed);
  }
  out.grow_by(static_cast<size_t>(at - out.end()));
}

void RecordWriter::many_ints(Lane& lane, const SlotValues& cell, Growing<std::byte>& out,
                             Pool& pool) {
  const size_t room = kMostHeader + lane.key.size();
  out.reserve(pool, room + cell.count * kLongestVarint + room);
  std::byte* const begin = out.end();
  std::byte* values = begin + lane.guess;
  const std::byte* end = put_varints(values, ints_of(cell), cell.count);
  const auto packed = static_cast<size_t>(end - values);
  const LongHeader header = LongHeader::of_numbers(lane.key, packed);
  if (header.bytes != lane.guess) {
    std::memmove(begin + header.bytes, values, packed);
    lane.guess = header.bytes;
  }
  // The header goes to a place of its own first: its stores reach past its end.
  std::byte* const draft = begin + header.bytes + packed;
  header.put(draft, lane.key, lane.kind);
  std::memcpy(begin, draft, header.bytes);
  out.grow_by(header.bytes + packed);
}

void RecordWriter::many_bytes(const Lane& lane, const SlotValues& cell, Growing<std::byte>& out,
                              Pool& pool) {
  const size_t list = strings_bytes(strings_of(cell), cell.count);
  out.reserve(pool, kMostHeader + lane.key.size() + list + kLongestVarint);
  std::byte* at = LongHeader::of_list(lane.key, list).put(out.end(), lane.key, lane.kind);
  at = put_strings(at, strings_of(cell), cell.count);
  out.grow_by(static_cast<size_t>(at - out.end()));
}

void RecordWriter::feature_lists(const StepValues* cells, Growing<std::byte>& out, Pool& pool) {
  LateLength length(0x12, lists_width_, out, pool);
  for (const Lane& lane : step_lanes_)
    if (cells[lane.slot].present) list(lane, cells[lane.slot], out, pool);
  length.finish();
}

void RecordWriter::list(const Lane& lane, const StepValues& cells, Growing<std::byte>& out,
                        Pool& pool) {
  sizes_.clear();
  size_t total = 0;
  for (size_t i = 0; i < cells.count; ++i) {
    const SlotValues& cell = cells.steps[i];
    StepSize size{0, 0};
    if (lane.kind == Kind::bytes) {
      size.list = strings_bytes(strings_of(cell), cell.count);
    } else if (cell.count != 0) {
      size.packed = lane.kind == Kind::ints ? varints_bytes(ints_of(cell), cell.count)
                                            : cell.count * sizeof(float);
      size.list = with_tag(size.packed) + size.packed;
    }
    const size_t feature = with_tag(size.list) + size.list;
    total += with_tag(feature) + feature;
    sizes_.push_back(size);
  }
  const size_t entry_bytes = with_tag(lane.key.size()) + lane.key.size() + with_tag(total) + total;
  out.reserve(pool, kMostHeader + entry_bytes + kLongestVarint);
  std::byte* at = put_varint(put_byte(out.end(), 0x0a), entry_bytes);
  at = put_varint(put_byte(at, 0x0a), lane.key.size());
  at = put_bytes(at, reinterpret_cast<const std::byte*>(lane.key.data()), lane.key.size());
  at = put_varint(put_byte(at, 0x12), total);
  for (size_t i = 0; i < cells.count; ++i) {
    const SlotValues& cell = cells.steps[i];
    const StepSize size = sizes_[i];
    at = put_varint(put_byte(at, 0x0a), with_tag(size.list) + size.list);
    at = put_varint(put_byte(at, static_cast<unsigned>(lane.kind) << 3 | 2), size.list);
    if (lane.kind == Kind::bytes) {
      at = put_strings(at, strings_of(cell), cell.count);
      continue;
    }
    if (cell.count == 0) continue;
    at = put_varint(put_byte(at, 0x0a), size.packed);
    at = lane.kind == Kind::ints ? put_varints(at, ints_of(cell), cell.count)
                                 : put_floats(at, floats_of(cell), cell.count);
  }
  out.grow_by(static_cast<size_t>(at - out.end()));
}

ColumnWriter::ColumnWriter(std::shared_ptr<const Plan> features, std::shared_ptr<const Plan> steps,
                           std::shared_ptr<Pool> pool)
    : writer_(std::move(features), std::move(steps)),
      pool_(std::move(pool)),
      fills_(fills_of(writer_.features_plan())) {
  cells_.resize(fills_.size());
  if (writer_.sequence()) steps_.resize(writer_.steps_plan().slots().size());
  strings_.resize(cells_.size() + steps_.size(), std::vector<Bytes>(1));
  step_cells_.resize(steps_.size());
}

std::vector<ColumnWriter::Fill> ColumnWriter::fills_of(const Plan& plan) {
  std::vector<Fill> fills;
  for (const SlotSpec& spec : plan.slots()) {
    Fill& fill = fills.emplace_back();
    if (spec.missing != Missing::fill) continue;
    fill.cell.present = true;
    if (spec.kind == Kind::ints) {
      fill.cell.values = spec.fill_ints.data();
      fill.cell.count = spec.fill_ints.size();
    } else if (spec.kind == Kind::floats) {
      fill.cell.values = spec.fill_floats.data();
      fill.cell.count = spec.fill_floats.size();
    } else {
      for (const std::string& value : spec.fill_bytes)
        fill.strings.push_back(std::as_bytes(std::span(value)));
      fill.cell.values = fill.strings.data();
      fill.cell.count = fill.strings.size();
    }
  }
  // The strings' own memory does not move with the vector that holds them.
  return fills;
}

namespace {

bool fits(const SlotSpec& spec, size_t count) noexcept {
  if (!spec.ragged) return count == spec.count;
  return spec.count == 0 ? count == 0 : count % spec.count == 0;
}

// The i-th string of a column.
Bytes string_at(const ColumnView& column, size_t i) noexcept {
  if (column.strings != nullptr) return column.strings[i];
  if (column.ends != nullptr)
    return {column.data + column.ends[i], static_cast<size_t>(column.ends[i + 1] - column.ends[i])};
  if (column.short_ends != nullptr)
    return {column.data + column.short_ends[i],
            static_cast<size_t>(column.short_ends[i + 1] - column.short_ends[i])};
  const std::byte* begin = column.data + i * column.width;
  size_t bytes = column.width;
  if (column.padded)
    while (bytes != 0 && begin[bytes - 1] == std::byte{0}) --bytes;
  return {begin, bytes};
}

// The values of one row of a column. Strings that lie end to end are noted in `strings`,
// behind those that are there, and the cell is left to be pointed at them.
Problem cell_of(const ColumnView& column, const SlotSpec& spec, size_t row,
                std::vector<Bytes>& strings, SlotValues& cell) {
  size_t first = row * spec.count;
  size_t count = spec.count;
  if (column.offsets != nullptr) {
    first = static_cast<size_t>(column.offsets[row]);
    count = static_cast<size_t>(column.offsets[row + 1]) - first;
    if (!fits(spec, count)) return {Fault::wrong_count, 0, spec.count, count};
  }
  cell.present = true;
  cell.count = count;
  if (column.ints != nullptr) {
    cell.values = column.ints + first;
    return {};
  }
  if (column.floats != nullptr) {
    cell.values = column.floats + first;
    return {};
  }
  if (column.strings != nullptr) {
    cell.values = column.strings + first;
  } else {
    for (size_t i = first; i < first + count; ++i) strings.push_back(string_at(column, i));
    cell.values = nullptr;
  }
  if (column.check_utf8)
    for (size_t i = 0; i < count; ++i)
      if (!is_utf8(string_at(column, first + i))) return {Fault::not_utf8, 0, 0, i};
  return {};
}

}  // namespace

ColumnWriter::Outcome ColumnWriter::gather(std::span<const ColumnView> columns,
                                           std::span<const StepsView> steps, size_t row) {
  const std::vector<SlotSpec>& specs = writer_.features_plan().slots();
  for (uint32_t slot = 0; slot < columns.size(); ++slot) {
    const ColumnView& column = columns[slot];
    SlotValues& cell = cells_[slot];
    if (column.absent || (column.valid != nullptr && column.valid[row] == 0)) {
      if (specs[slot].missing == Missing::refuse) return {row, {Fault::missing, 0, 0, 0}, slot};
      cell = fills_[slot].cell;
      continue;
    }
    std::vector<Bytes>& strings = strings_[slot];
    // One value a row, by far the most common column.
    if (specs[slot].count == 1 && column.offsets == nullptr && !column.check_utf8) [[likely]] {
      if (column.ints != nullptr) {
        cell = {column.ints + row, 1, true};
      } else if (column.floats != nullptr) {
        cell = {column.floats + row, 1, true};
      } else {
        strings[0] = string_at(column, row);
        cell = {strings.data(), 1, true};
      }
      continue;
    }
    strings.clear();
    if (const Problem problem = cell_of(column, specs[slot], row, strings, cell))
      return {row, problem, slot};
    if (cell.values == nullptr) cell.values = strings.data();
    if (strings.empty()) strings.resize(1);  // as the common case wants it
  }
  for (uint32_t slot = 0; slot < steps.size(); ++slot) {
    const StepsView& view = steps[slot];
    const SlotSpec& spec = writer_.steps_plan().slots()[slot];
    const auto numbered = static_cast<uint32_t>(columns.size()) + slot;
    if (view.absent || (view.valid != nullptr && view.valid[row] == 0)) {
      if (spec.missing == Missing::refuse) return {row, {Fault::missing, 0, 0, 0}, numbered};
      steps_[slot] = {};
      continue;
    }
    std::vector<Bytes>& strings = strings_[numbered];
    std::vector<SlotValues>& cells = step_cells_[slot];
    strings.clear();
    cells.clear();
    for (auto step = view.offsets[row]; step < view.offsets[row + 1]; ++step) {
      const auto at = static_cast<size_t>(step);
      if (view.column.absent || (view.column.valid != nullptr && view.column.valid[at] == 0))
        return {row, {Fault::missing, 0, 0, at - static_cast<size_t>(view.offsets[row])}, numbered};
      SlotValues& cell = cells.emplace_back();
      if (const Problem problem = cell_of(view.column, spec, at, strings, cell))
        return {row, problem, numbered};
    }
    // Only now do the strings stay where they are.
    const Bytes* next = strings.data();
    for (SlotValues& cell : cells) {
      if (cell.values != nullptr || spec.kind != Kind::bytes) continue;
      cell.values = next;
      next += cell.count;
    }
    steps_[slot] = {cells.data(), cells.size(), true};
  }
  return {row, {}, 0};
}

namespace {

// Whether any row could be refused at all.
bool may_fail(const ColumnView& column, const SlotSpec& spec) noexcept {
  const bool holes = column.absent || column.valid != nullptr;
  return (holes && spec.missing == Missing::refuse) || column.offsets != nullptr ||
         column.check_utf8;
}

Problem problem_of(const ColumnView& column, const SlotSpec& spec, size_t row) noexcept {
  if (column.absent || (column.valid != nullptr && column.valid[row] == 0))
    return {spec.missing == Missing::refuse ? Fault::missing : Fault::none, 0, 0, 0};
  size_t first = row * spec.count;
  size_t count = spec.count;
  if (column.offsets != nullptr) {
    first = static_cast<size_t>(column.offsets[row]);
    count = static_cast<size_t>(column.offsets[row + 1]) - first;
    if (!fits(spec, count)) return {Fault::wrong_count, 0, spec.count, count};
  }
  if (column.check_utf8)
    for (size_t i = 0; i < count; ++i)
      if (!is_utf8(string_at(column, first + i))) return {Fault::not_utf8, 0, 0, i};
  return {};
}

}  // namespace

ColumnWriter::Outcome ColumnWriter::check(std::span<const ColumnView> columns,
                                          std::span<const StepsView> steps, size_t rows) {
  // Column by column, as they lie in memory; of several problems the first row's counts.
  Outcome first{rows, {}, 0};
  for (uint32_t slot = 0; slot < columns.size(); ++slot) {
    const SlotSpec& spec = writer_.features_plan().slots()[slot];
    if (!may_fail(columns[slot], spec)) continue;
    for (size_t row = 0; row < first.rows; ++row)
      if (const Problem problem = problem_of(columns[slot], spec, row))
        first = {row, problem, slot};
  }
  if (steps.empty()) return first;
  for (size_t row = 0; row < first.rows; ++row)
    if (const Outcome outcome = gather(columns, steps, row); outcome.problem) return outcome;
  return first;
}

namespace {

// Rows between two prefetches, and how far ahead they are: a line has eight 8-byte values.
constexpr size_t kPrefetchRows = 8;
constexpr size_t kPrefetchDistance = 4 * kPrefetchRows;
constexpr size_t kLineBytes = 64;

// A column's memory, where each row has a few bytes.
struct Stream {
  const std::byte* data;
  size_t row_bytes;
};

std::vector<Stream> streams_of(std::span<const ColumnView> columns,
                               const std::vector<SlotSpec>& specs) {
  std::vector<Stream> streams;
  for (size_t slot = 0; slot < columns.size(); ++slot) {
    const ColumnView& column = columns[slot];
    if (column.absent || column.offsets != nullptr || specs[slot].count != 1) continue;
    Stream stream{column.data, column.width};
    if (column.ints != nullptr)
      stream = {reinterpret_cast<const std::byte*>(column.ints), sizeof(int64_t)};
    else if (column.floats != nullptr)
      stream = {reinterpret_cast<const std::byte*>(column.floats), sizeof(float)};
    else if (column.strings != nullptr)
      stream = {reinterpret_cast<const std::byte*>(column.strings), sizeof(Bytes)};
    else if (column.ends != nullptr)
      stream = {reinterpret_cast<const std::byte*>(column.ends), sizeof(int64_t)};
    else if (column.short_ends != nullptr)
      stream = {reinterpret_cast<const std::byte*>(column.short_ends), sizeof(int32_t)};
    if (stream.row_bytes <= kLineBytes) streams.push_back(stream);
  }
  return streams;
}

// A row of dozens of columns is read from more places than the processor's own prefetcher
// follows.
void prefetch(const std::vector<Stream>& streams, size_t row) noexcept {
  for (const Stream& stream : streams) {
    const std::byte* at = stream.data + row * stream.row_bytes;
    for (size_t i = 0; i < kPrefetchRows * stream.row_bytes; i += kLineBytes)
      __builtin_prefetch(at + i);
  }
}

}  // namespace

ColumnWriter::Outcome ColumnWriter::write(std::span<const ColumnView> columns,
                                          std::span<const StepsView> steps, size_t begin,
                                          size_t end, size_t enough, bool framed,
                                          Growing<std::byte>& out, Growing<int64_t>* ends,
                                          WrittenColumns* written) {
  const std::vector<Stream> streams = streams_of(columns, writer_.features_plan().slots());
  for (size_t row = begin; row < end; ++row) {
    if (row % kPrefetchRows == 0 && end - row >= kPrefetchDistance + kPrefetchRows)
      prefetch(streams, row + kPrefetchDistance);
    if (const Outcome outcome = gather(columns, steps, row); outcome.problem) return outcome;
    if (!writer_.add(cells_.data(), steps_.data(), framed, out, *pool_))
      return {row, {Fault::length, 0, kLargestPayload, 0}, 0};
    if (written != nullptr && !written->add(cells_.data()))
      return {row, {Fault::wrong_count, 0, 0, 0}, 0};
    if (ends != nullptr) {
      ends->reserve(*pool_, 1);
      ends->push(static_cast<int64_t>(out.size()));
    }
    if (out.size() >= enough) return {row + 1, {}, 0};
  }
  return {std::max(begin, end), {}, 0};
}

}  // namespace rekord

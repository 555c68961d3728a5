// Payloads put together by hand, and what decoders make of them, written down as text.
//
//     example({entry("a", ints({5, -1})), entry("b", strings({"x"}))})
//     a: [5,-1] [7] -          one bracket a row, a dash where a row has no value
#pragma once

#include <bit>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "decode.h"
#include "hex.h"

namespace rekord::testing {

inline Buffer varint(uint64_t value) {
  Buffer out;
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<std::byte>(value | 0x80));
  out.push_back(static_cast<std::byte>(value));
  return out;
}

// A LEN field.
inline Buffer field(uint64_t number, const Buffer& body) {
  return join({varint(number << 3 | 2), varint(body.size()), body});
}

inline Buffer packed_ints(const std::vector<int64_t>& values) {
  Buffer out;
  for (const int64_t value : values) out = join({out, varint(static_cast<uint64_t>(value))});
  return out;
}

inline Buffer packed_floats(const std::vector<float>& values) {
  Buffer out(4 * values.size());
  for (size_t i = 0; i < values.size(); ++i)
    store_le(out.data() + 4 * i, std::bit_cast<uint32_t>(values[i]));
  return out;
}

// Features: a list in its usual form.
inline Buffer ints(const std::vector<int64_t>& values) {
  return field(3, values.empty() ? Buffer{} : field(1, packed_ints(values)));
}

inline Buffer floats(const std::vector<float>& values) {
  return field(2, values.empty() ? Buffer{} : field(1, packed_floats(values)));
}

inline Buffer strings(const std::vector<std::string>& values) {
  Buffer list;
  for (const std::string& value : values) list = join({list, field(1, text(value))});
  return field(1, list);
}

inline Buffer entry(std::string_view key, const Buffer& value) {
  return field(1, join({field(1, text(key)), field(2, value)}));
}

inline Buffer joined(const std::vector<Buffer>& parts) {
  Buffer whole;
  for (const Buffer& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

inline Buffer example(const std::vector<Buffer>& entries) { return field(1, joined(entries)); }

inline Buffer feature_list(const std::vector<Buffer>& steps) {
  Buffer out;
  for (const Buffer& step : steps) out = join({out, field(1, step)});
  return out;
}

inline Buffer sequence(const std::vector<Buffer>& context, const std::vector<Buffer>& lists) {
  return join({field(1, joined(context)), field(2, joined(lists))});
}

// ---- Text ---------------------------------------------------------------------------------

inline std::string shown(int64_t value) { return std::to_string(value); }
inline std::string shown(float value) {
  char out[32];
  std::snprintf(out, sizeof out, "%g", static_cast<double>(value));
  return out;
}
inline std::string shown(Bytes value) {
  const std::string whole(as_text(value));
  if (whole.size() <= 40) return whole;
  // All of it counts, and only its outline is shown.
  uint32_t sum = 0;
  for (const char c : whole) sum = sum * 31 + static_cast<unsigned char>(c);
  return whole.substr(0, 4) + "…" + std::to_string(whole.size()) + "/" + std::to_string(sum);
}

template <class Value>
std::string bracketed(size_t begin, size_t end, Value&& value) {
  std::string out = "[";
  for (size_t i = begin; i < end; ++i) out += (i > begin ? "," : "") + value(i);
  return out + "]";
}

// How many values a column has.
inline size_t values_of(const SlotSpec& spec, const Column& column) {
  if (spec.kind == Kind::ints) return column.ints.size();
  if (spec.kind == Kind::floats) return column.floats.size();
  return column.strings();
}

inline std::string shown(const SlotSpec& spec, const Column& column, size_t rows) {
  std::string out;
  for (size_t row = 0; row < rows; ++row) {
    if (row > 0) out += ' ';
    if (column.valid && column.valid.data()[row] == 0) {
      out += '-';
      continue;
    }
    size_t begin = row * static_cast<size_t>(spec.count),
           end = begin + static_cast<size_t>(spec.count);
    if (spec.ragged) {
      begin = static_cast<size_t>(column.offsets.data()[row]);
      end = static_cast<size_t>(column.offsets.data()[row + 1]);
    }
    out += bracketed(begin, end, [&](size_t i) {
      if (spec.kind == Kind::ints) return shown(column.ints.data()[i]);
      if (spec.kind == Kind::floats) return shown(column.floats.data()[i]);
      return shown(column.string(i));
    });
  }
  return out;
}

// What the reader without a schema says of each key: the last value that it had.
struct Unplanned {
  std::map<std::string, std::string, std::less<>> values;
  std::map<std::string, Kind, std::less<>> kinds;

  void feature(std::string_view key, const FeatureView& view) {
    kinds[std::string(key)] = view.kind;
    values[std::string(key)] = value(view);
  }
  void begin_steps(std::string_view key) { values[current = key] = ""; }
  void step(const FeatureView& view) {
    std::string& steps = values[current];
    steps += (steps.empty() ? "" : ";") + value(view);
  }
  void end_steps() noexcept {}

  static std::string value(const FeatureView& view) {
    if (view.kind == Kind::unset) return "-";
    std::vector<int64_t> int_values(view.kind == Kind::ints ? view.count : 0);
    std::vector<float> float_values(view.kind == Kind::floats ? view.count : 0);
    std::vector<Bytes> byte_values;
    if (view.kind == Kind::ints) copy_ints(view, int_values);
    if (view.kind == Kind::floats) copy_floats(view, float_values);
    if (view.kind == Kind::bytes)
      for_each_bytes(view, [&](Bytes one) { byte_values.push_back(one); });
    return bracketed(0, view.count, [&](size_t i) {
      if (view.kind == Kind::ints) return shown(int_values[i]);
      if (view.kind == Kind::floats) return shown(float_values[i]);
      return shown(byte_values[i]);
    });
  }

  std::string current;
};

// ---- Slots --------------------------------------------------------------------------------

inline SlotSpec slot(std::string key, Kind kind, uint64_t count = 1) {
  SlotSpec spec;
  spec.key = std::move(key);
  spec.kind = kind;
  spec.count = count;
  return spec;
}

inline SlotSpec ragged(std::string key, Kind kind, uint64_t count = 1) {
  SlotSpec spec = slot(std::move(key), kind, count);
  spec.ragged = true;
  return spec;
}

inline SlotSpec with(SlotSpec spec, Missing missing) {
  spec.missing = missing;
  return spec;
}

inline SlotSpec texts(SlotSpec spec) {
  spec.utf8 = true;
  return spec;
}

inline SlotSpec skipped(SlotSpec spec) {
  spec.skip = true;
  return spec;
}

// A payload as decoders want it: with exactly as many bytes behind it as they may read.
class Padded {
 public:
  explicit Padded(const Buffer& payload) : bytes_(payload), size_(payload.size()) {
    bytes_.resize(size_ + kPadding, std::byte{0x5a});
    bytes_.shrink_to_fit();
  }
  operator Bytes() const noexcept {
    return {bytes_.data(), size_};
  }  // NOLINT: stands for its bytes

 private:
  Buffer bytes_;
  size_t size_;
};

// A decoder, a pool whose idle buffers are poisoned, and what comes out as text.
class Reading {
 public:
  explicit Reading(std::vector<SlotSpec> slots, bool strict = false)
      : plan_(std::make_shared<Plan>(std::move(slots), strict)), decoder_(plan_, pool_) {}

  RowProblem add(const Buffer& payload) { return add_all({payload}); }

  // Rows that the decoder may keep for a while before it moves their values.
  RowProblem add_all(const std::vector<Buffer>& payloads) {
    std::vector<Padded> kept;
    kept.reserve(payloads.size());
    for (const Buffer& payload : payloads)
      if (RowProblem problem = decoder_.add(kept.emplace_back(payload), nullptr)) return problem;
    return decoder_.settle();
  }

  // The same from memory that long values are viewed in.
  RowProblem add_from_slab(const Buffer& payload) {
    const BlockRef slab = pool_->acquire(payload.size() + kPadding);
    std::memcpy(slab->data(), payload.data(), payload.size());
    return add_in({slab->data(), payload.size()}, slab);
  }

  RowProblem add_in(Bytes payload, const BlockRef& slab) {
    if (RowProblem problem = decoder_.add(payload, slab)) return problem;
    return decoder_.settle();
  }

  size_t rows() const { return decoder_.rows(); }
  const Plan& plan() const { return *plan_; }
  Pool& pool() { return *pool_; }

  std::vector<Column> columns() {
    std::vector<Column> columns = decoder_.finish();
    decoder_.start();
    return columns;
  }

  // All columns, "key: rows" each, and a new batch begins.
  std::string take() {
    const size_t rows = decoder_.rows();
    const std::vector<Column> taken = columns();
    std::string out;
    for (size_t i = 0; i < taken.size(); ++i) {
      const SlotSpec& spec = plan_->slots()[i];
      if (spec.skip) continue;
      out += (out.empty() ? "" : "  ") + spec.key + ": " + shown(spec, taken[i], rows);
      const size_t expected = spec.ragged ? static_cast<size_t>(taken[i].offsets.back())
                                          : rows * static_cast<size_t>(spec.count);
      if (values_of(spec, taken[i]) != expected) out += " (and values of no row)";
    }
    return out;
  }

 private:
  std::shared_ptr<Pool> pool_ = Pool::create(1 << 24, true);
  std::shared_ptr<const Plan> plan_;
  Decoder decoder_;
};

}  // namespace rekord::testing

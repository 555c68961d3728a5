// Columns to records for Python: NumPy arrays and string buffers, not copied.
#include "encode.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/shared_ptr.h>

#include <deque>
#include <optional>

#include "bind/bind.h"
#include "bind/output.h"
#include "bind/strings.h"

namespace nb = nanobind;

namespace rekord {
namespace {

template <class Item>
using Array = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using FixedWidth = nb::ndarray<const uint8_t, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

// What a piece is begun with: enough that it need not grow on the way.
constexpr size_t kMostStart = 4 << 20;
constexpr size_t kSlack = 256 << 10;

// A place to point at where there are no values: a null pointer would mean another kind.
constexpr int64_t kNothing = 0;

template <class Item>
const Item* start_of(const Array<Item>& array) noexcept {
  return array.data() != nullptr ? array.data() : reinterpret_cast<const Item*>(&kNothing);
}

bool is_ascii(const std::byte* data, size_t bytes) noexcept {
  uint64_t any = 0;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) any |= load_le<uint64_t>(data + i);
  for (; i < bytes; ++i) any |= std::to_integer<uint64_t>(data[i]);
  return (any & kTopBits) == 0;
}

void require(bool holds, const char* what) {
  if (!holds) throw nb::value_error(what);
}

// Columns as Python gave them, and everything that keeps their memory alive.
class Holder {
 public:
  // Of (values, offsets, valid), or None where no row has a value. `rows` is how many
  // there must be. Nothing outside of the buffers can be reached through the view.
  ColumnView column(nb::handle given, const SlotSpec& spec, size_t rows) {
    ColumnView view;
    if (given.is_none()) {
      view.absent = true;
      return view;
    }
    const auto parts = nb::cast<nb::tuple>(given);
    require(parts.size() == 3, "a column is (values, offsets, valid)");
    const size_t values = values_of(parts[0], spec, view);
    if (parts[1].is_none()) {
      require(spec.count == 0 || rows <= values / spec.count, "fewer values than rows");
    } else {
      view.offsets = offsets(parts[1], rows, values);
    }
    view.valid = valid(parts[2], rows);
    return view;
  }

  const int64_t* offsets(nb::handle given, size_t rows, size_t values) {
    const auto& array = hold<int64_t>(given);
    require(array.size() == rows + 1, "one offset more than rows");
    const int64_t* data = array.data();
    require(data[0] >= 0 && static_cast<uint64_t>(data[rows]) <= values, "offsets past the values");
    for (size_t i = 0; i < rows; ++i) require(data[i] <= data[i + 1], "offsets that fall");
    return data;
  }

  const uint8_t* valid(nb::handle given, size_t rows) {
    if (given.is_none()) return nullptr;
    const auto& array = hold<uint8_t>(given);
    require(array.size() == rows, "one flag a row");
    return start_of(array);
  }

 private:
  template <class Item>
  const Array<Item>& hold(nb::handle given) {
    auto array = nb::cast<Array<Item>>(given);
    auto& arrays = [this]() -> auto& {
      if constexpr (std::is_same_v<Item, int64_t>)
        return ints_;
      else if constexpr (std::is_same_v<Item, int32_t>)
        return short_ints_;
      else if constexpr (std::is_same_v<Item, float>)
        return floats_;
      else
        return bytes_;
    }();
    return arrays.emplace_back(std::move(array));
  }

  size_t values_of(nb::handle given, const SlotSpec& spec, ColumnView& view) {
    if (spec.kind == Kind::ints) {
      const auto& array = hold<int64_t>(given);
      view.ints = start_of(array);
      return array.size();
    }
    if (spec.kind == Kind::floats) {
      const auto& array = hold<float>(given);
      view.floats = start_of(array);
      return array.size();
    }
    if (nb::isinstance<nb::list>(given)) return objects(nb::cast<nb::list>(given), spec, view);
    const auto parts = nb::cast<nb::tuple>(given);
    require(parts.size() == 2,
            "strings are (ends, data), (rows of bytes, padded), or (column, known to be UTF-8)");
    if (nb::isinstance<StringColumn>(parts[0]))
      return native_strings(parts[0], nb::cast<bool>(parts[1]), spec, view);
    if (FixedWidth rows; nb::try_cast(parts[0], rows))
      return fixed_width(std::move(rows), nb::cast<bool>(parts[1]), spec, view);
    const auto& data = hold<uint8_t>(parts[1]);
    view.data = reinterpret_cast<const std::byte*>(start_of(data));
    // One look at all bytes together is much quicker than one at each string.
    view.check_utf8 = spec.utf8 && !is_ascii(view.data, data.size());
    if (Array<int32_t> narrow; nb::try_cast(parts[0], narrow)) {
      const auto& ends = short_ints_.emplace_back(std::move(narrow));
      view.short_ends = ends.data();
      return check_ends(ends.data(), ends.size(), data.size());
    }
    const auto& ends = hold<int64_t>(parts[0]);
    view.ends = ends.data();
    return check_ends(ends.data(), ends.size(), data.size());
  }

  template <class Item>
  static size_t check_ends(const Item* ends, size_t count, size_t bytes) {
    require(count > 0 && ends[0] >= 0 && static_cast<uint64_t>(ends[count - 1]) <= bytes,
            "ends past the data");
    for (size_t i = 1; i < count; ++i) require(ends[i - 1] <= ends[i], "ends that fall");
    return count - 1;
  }

  // One string a row of the array.
  size_t fixed_width(FixedWidth rows, bool padded, const SlotSpec& spec, ColumnView& view) {
    const auto& held = fixed_.emplace_back(std::move(rows));
    view.data = reinterpret_cast<const std::byte*>(
        held.data() != nullptr ? held.data() : reinterpret_cast<const uint8_t*>(&kNothing));
    view.width = held.shape(1);
    view.padded = padded;
    view.check_utf8 = spec.utf8 && !is_ascii(view.data, held.size());
    return held.shape(0);
  }

  // A list of bytes and str. The tuple holds on to each of them, whatever happens to the list.
  size_t objects(const nb::list& list, const SlotSpec& spec, ColumnView& view) {
    const auto& held = objects_.emplace_back(nb::tuple(list));
    auto& strings = strings_.emplace_back();
    strings.reserve(held.size());
    for (nb::handle value : held) {
      if (PyBytes_Check(value.ptr())) {
        strings.push_back({reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(value.ptr())),
                           static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))});
        view.check_utf8 = spec.utf8;
      } else {
        Py_ssize_t length = 0;
        const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
        if (text == nullptr) throw nb::python_error();
        strings.push_back({reinterpret_cast<const std::byte*>(text), static_cast<size_t>(length)});
      }
    }
    if (strings.empty()) strings.emplace_back();  // so that there is a place to point at
    view.strings = strings.data();
    return held.size();
  }

  // Strings that a batch was read into, or that were packed for this.
  size_t native_strings(nb::handle given, bool known_utf8, const SlotSpec& spec, ColumnView& view) {
    objects_.emplace_back(nb::make_tuple(given));
    const auto& column = nb::cast<const StringColumn&>(given);
    view.check_utf8 = spec.utf8 && !known_utf8;
    if (column.packed()) {
      view.data = column.data()->data();
      view.ends = reinterpret_cast<const int64_t*>(column.ends()->data());
      return column.size();
    }
    auto& strings = strings_.emplace_back();
    strings.reserve(column.size() + 1);
    for (size_t i = 0; i < column.size(); ++i) strings.push_back(column.at(i));
    view.strings = strings.data();
    return column.size();
  }

  // Deques, so that what is held does not move.
  std::deque<Array<int64_t>> ints_;
  std::deque<Array<int32_t>> short_ints_;
  std::deque<Array<float>> floats_;
  std::deque<Array<uint8_t>> bytes_;
  std::deque<FixedWidth> fixed_;
  std::deque<nb::tuple> objects_;
  std::deque<std::vector<Bytes>> strings_;
};

// The columns of one batch, checked once and then written in as many pieces as wanted.
class ColumnBatch {
 public:
  ColumnBatch(std::shared_ptr<Plan> features, std::shared_ptr<Plan> steps,
              std::shared_ptr<Pool> pool, const nb::list& columns, const nb::list& lists,
              size_t rows)
      : writer_(features, steps, pool), pool_(std::move(pool)), rows_(rows) {
    require(columns.size() == features->slots().size(), "one column a slot");
    require(lists.size() == (steps ? steps->slots().size() : 0), "one list a slot");
    for (size_t i = 0; i < columns.size(); ++i)
      columns_.push_back(holder_.column(columns[i], features->slots()[i], rows));
    for (size_t i = 0; i < lists.size(); ++i)
      steps_.push_back(steps_of(lists[i], steps->slots()[i]));
  }

  // (row, problem, slot) of the first row that cannot be written, or None.
  nb::object check() {
    ColumnWriter::Outcome outcome;
    {
      nb::gil_scoped_release unlocked;
      outcome = writer_.check(columns_, steps_, rows_);
    }
    if (outcome.problem) return nb::make_tuple(outcome.rows, outcome.problem, outcome.slot);
    for (ColumnView& column : columns_) column.check_utf8 = false;
    for (StepsView& step : steps_) step.column.check_utf8 = false;
    return nb::none();
  }

  // (records, rows done, ends or None, (problem, slot) or None, columns or None)
  nb::tuple write(size_t begin, size_t enough, bool framed, bool with_ends,
                  std::shared_ptr<Plan> kept) {
    Growing<std::byte> out;
    Growing<int64_t> ends;
    std::optional<WrittenColumns> written;
    ColumnWriter::Outcome outcome;
    {
      nb::gil_scoped_release unlocked;
      out.start(writer_.pool(), std::min(enough, kMostStart) + kSlack);
      if (with_ends) ends.start(writer_.pool(), 1024);
      if (kept) written.emplace(std::move(kept), pool_);
      outcome = writer_.write(columns_, steps_, std::min(begin, rows_), rows_, enough, framed, out,
                              with_ends ? &ends : nullptr, written ? &*written : nullptr);
    }
    nb::object problem = nb::none();
    if (outcome.problem) problem = nb::make_tuple(outcome.problem, outcome.slot);
    nb::object where = nb::none();
    if (with_ends) where = output_array<int64_t>(ends.block(), ends.size());
    nb::object columns = nb::none();
    if (written) columns = columns_to_list(written->plan(), written->take());
    return nb::make_tuple(output_array<uint8_t>(out.block(), out.size()), outcome.rows, where,
                          problem, columns);
  }

 private:
  // Of (column of the steps, where each record's steps begin, valid by record), or None.
  StepsView steps_of(nb::handle given, const SlotSpec& spec) {
    StepsView view;
    if (given.is_none()) {
      view.absent = true;
      return view;
    }
    const auto parts = nb::cast<nb::tuple>(given);
    require(parts.size() == 4, "steps are (column, number of steps, offsets, valid)");
    const auto count = nb::cast<size_t>(parts[1]);
    view.column = holder_.column(parts[0], spec, count);
    view.offsets = holder_.offsets(parts[2], rows_, count);
    view.valid = holder_.valid(parts[3], rows_);
    return view;
  }

  ColumnWriter writer_;
  std::shared_ptr<Pool> pool_;
  Holder holder_;
  std::vector<ColumnView> columns_;
  std::vector<StepsView> steps_;
  size_t rows_;
};

// A list of bytes, or (for texts) of str that UTF-8 can hold, exact types only, as
// (values, valid or None); None where a value needs a closer look. Short strings are
// packed into one buffer, so that writing does not run after each of them again.
nb::object plain_strings(const nb::list& list, bool text, const std::shared_ptr<Pool>& pool) {
  constexpr size_t kPackedAtMost = 256;
  const size_t count = list.size();
  Growing<std::byte> data;
  Growing<int64_t> ends;
  Growing<uint8_t> valid;
  data.start(*pool, count * 16);
  ends.start(*pool, count + 1);
  ends.push(0);
  bool packed = true;
  bool known_utf8 = true;
  for (nb::handle value : list) {
    Bytes string;
    if (PyBytes_CheckExact(value.ptr())) {
      known_utf8 = false;
      string = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(value.ptr())),
                static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
    } else if (text && PyUnicode_CheckExact(value.ptr())) {
      Py_ssize_t length = 0;
      const char* characters = PyUnicode_AsUTF8AndSize(value.ptr(), &length);
      if (characters == nullptr) {
        PyErr_Clear();  // a lone surrogate
        return nb::none();
      }
      string = {reinterpret_cast<const std::byte*>(characters), static_cast<size_t>(length)};
    } else if (!value.is_none()) {
      return nb::none();
    }
    const size_t row = ends.size() - 1;
    if (value.is_none() && !valid) {
      valid.start(*pool, count);
      std::memset(valid.data(), 1, count);
      valid.grow_by(count);
    }
    if (value.is_none()) valid.data()[row] = 0;
    packed = packed && string.size() <= kPackedAtMost;
    if (packed && !string.empty()) {
      data.reserve(*pool, string.size());
      std::memcpy(data.end(), string.data(), string.size());
      data.grow_by(string.size());
    }
    ends.push(static_cast<int64_t>(data.size()));
  }
  nb::object flags = nb::none();
  if (valid) flags = output_array<uint8_t>(valid.block(), count);
  if (!packed) return nb::make_tuple(nb::none(), flags);
  StringColumn column(data.release(), ends.release(), count);
  return nb::make_tuple(nb::make_tuple(nb::cast(std::move(column)), known_utf8), flags);
}

}  // namespace

void bind_encode(nb::module_& module) {
  nb::class_<ColumnBatch>(module, "ColumnBatch", "Columns that are written as records.")
      .def(nb::init<std::shared_ptr<Plan>, std::shared_ptr<Plan>, std::shared_ptr<Pool>,
                    const nb::list&, const nb::list&, size_t>(),
           nb::arg("features"), nb::arg("steps").none(), nb::arg("pool"), nb::arg("columns"),
           nb::arg("lists"), nb::arg("rows"),
           "`columns`: (values, offsets or None, valid or None) a slot, None where it is absent;\n"
           "values are an int64 or float32 array, (ends, data) arrays, (2-D array with one string\n"
           "a row, whether zeros at its end are padding), (StringColumn, known to be UTF-8), or a\n"
           "list of bytes and str.\n"
           "`lists`: (column of the steps, number of steps, offsets, valid or None) a slot.")
      .def("check", &ColumnBatch::check,
           "(row, problem, slot) of the first row that cannot be written, or None.")
      .def("write", &ColumnBatch::write, nb::arg("begin"), nb::arg("enough_bytes"),
           nb::arg("framed"), nb::arg("ends"), nb::arg("kept").none() = nb::none(),
           "Write rows from `begin` on until there are enough bytes.\n\n"
           "Gives (records, row it came to, ends of records or None, (problem, slot) of that row\n"
           "or None, columns of the slots that the plan `kept` does not skip or None).");

  module.def(
      "plain_strings", &plain_strings, nb::arg("list"), nb::arg("text"), nb::arg("pool"),
      "(strings packed or None where they are long, valid or None) of a list of bytes, or of\n"
      "str if `text`, and None; None where there is anything else.");
}

}  // namespace rekord

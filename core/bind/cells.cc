#include "bind/cells.h"

#include <cmath>

namespace nb = nanobind;

namespace rekord {
namespace {

// Whether all numbers, turned into int64, lie within the field's bounds.
template <class From>
bool convert_ints(const RowField& field, const void* from, size_t count, int64_t* to) noexcept {
  const auto* values = static_cast<const From*>(from);
  bool fits = true;
  for (size_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<From, uint64_t>) fits &= values[i] <= uint64_t{INT64_MAX};
    const auto number = static_cast<int64_t>(values[i]);
    fits &= number >= field.low && number <= field.high;
    to[i] = number;
  }
  return fits;
}

bool ints_fit(const RowField& field, const int64_t* values, size_t count) noexcept {
  if (field.low == INT64_MIN && field.high == INT64_MAX) return true;
  bool fits = true;
  for (size_t i = 0; i < count; ++i) fits &= values[i] >= field.low && values[i] <= field.high;
  return fits;
}

bool floats_fit(const RowField& field, const float* values, size_t count) noexcept {
  if (!field.ranged) return true;
  // NaN compares false, and so does not fit.
  bool fits = true;
  for (size_t i = 0; i < count; ++i)
    fits &= values[i] >= field.low_float && values[i] <= field.high_float;
  return fits;
}

// Rounds to nearest; false where a finite number would become infinite, or change
// although the field says exactly.
bool round_float(const RowField& field, double from, float& to) noexcept {
  const auto number = static_cast<float>(from);
  if (std::isinf(number) && std::abs(from) != HUGE_VAL) return false;
  if (field.exact && static_cast<double>(number) != from && from == from) return false;
  to = number;
  return true;
}

bool convert_doubles(const RowField& field, const void* from, size_t count, float* to) noexcept {
  const auto* values = static_cast<const double*>(from);
  if (!field.exact) {
    // In one go: what overflows shows as a finite number beyond float32's.
    bool fits = true;
    for (size_t i = 0; i < count; ++i) {
      to[i] = static_cast<float>(values[i]);
      fits &= !(std::isinf(to[i]) && std::abs(values[i]) != HUGE_VAL);
    }
    return fits;
  }
  for (size_t i = 0; i < count; ++i)
    if (!round_float(field, values[i], to[i])) return false;
  return true;
}

// The buffer format of a NumPy array of this machine's byte order, as one letter.
// The type of a buffer's items. A dtype that names its byte order, as those of a
// schema do, is the same type on the little-endian machines that we run on.
char format_of(const Py_buffer& view) noexcept {
  const char* format = view.format;
  if (format != nullptr && format[0] == '<') ++format;
  return format != nullptr && format[0] != '\0' && format[1] == '\0' ? format[0] : '\0';
}

}  // namespace

void Arena::refill(size_t bytes) {
  const size_t size = std::max(bytes, kBlockBytes);
  blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(size), size});
  next_ = blocks_.back().memory.get();
  left_ = size;
}

void Arena::clear() noexcept {
  if (blocks_.empty()) return;
  if (blocks_.size() > 1) blocks_.erase(blocks_.begin() + 1, blocks_.end());
  if (blocks_[0].size > kBlockBytes) {
    blocks_.clear();
    next_ = nullptr;
    left_ = 0;
    return;
  }
  next_ = blocks_[0].memory.get();
  left_ = blocks_[0].size;
}

void Held::clear() noexcept {
  for (Py_buffer& view : views) PyBuffer_Release(&view);
  views.clear();
  objects.clear();
  arena.clear();
}

NumpyTypes::NumpyTypes() {
  const nb::module_ numpy = nb::module_::import_("numpy");
  const auto type = [&](const char* name) {
    owners.push_back(numpy.attr(name));
    return reinterpret_cast<PyTypeObject*>(owners.back().ptr());
  };
  array = type("ndarray");
  float64 = type("float64");
  float32 = type("float32");
  boolean = type("bool_");
  for (const char* name :
       {"int64", "int32", "uint8", "int16", "int8", "uint16", "uint32", "uint64", "longlong"})
    ints.push_back(type(name));
}

bool NumpyTypes::is_int(PyTypeObject* type) const noexcept {
  for (PyTypeObject* each : ints)
    if (each == type) return true;
  return false;
}

bool CellReader::one_int(const RowField& field, PyObject* value, int64_t& out) const {
  int overflow = 0;
  if (PyLong_CheckExact(value)) [[likely]] {
    out = PyLong_AsLongLongAndOverflow(value, &overflow);
  } else if (PyBool_Check(value)) {
    out = value == Py_True;
  } else if (PyUnicode_CheckExact(value)) {
    if (field.names.is_none()) return false;
    PyObject* number = PyDict_GetItemWithError(field.names.ptr(), value);
    if (number == nullptr) {
      if (PyErr_Occurred() != nullptr) throw nb::python_error();
      return false;
    }
    out = PyLong_AsLongLongAndOverflow(number, &overflow);
  } else if (types_.is_int(Py_TYPE(value))) {
    const nb::object number = nb::steal(PyNumber_Index(value));
    if (!number.is_valid()) throw nb::python_error();
    out = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  } else if (Py_TYPE(value) == types_.boolean) {
    const int truth = PyObject_IsTrue(value);
    if (truth < 0) throw nb::python_error();
    out = truth;
  } else {
    return false;
  }
  return overflow == 0 && out >= field.low && out <= field.high;
}

bool CellReader::one_float(const RowField& field, PyObject* value, float& out) const {
  if (PyFloat_CheckExact(value) || Py_TYPE(value) == types_.float64) [[likely]] {
    if (!round_float(field, PyFloat_AS_DOUBLE(value), out)) return false;
  } else if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow);
    // What float32 does not hold exactly is judged elsewhere.
    constexpr int64_t kWhole = 1 << 24;
    if (overflow != 0 || number < -kWhole || number > kWhole) return false;
    out = static_cast<float>(number);
  } else if (Py_TYPE(value) == types_.float32) {
    const double number = PyFloat_AsDouble(value);
    if (number == -1.0 && PyErr_Occurred() != nullptr) throw nb::python_error();
    // The bits of a NaN do not all survive the way through a double.
    if (number != number) return false;
    out = static_cast<float>(number);
  } else {
    return false;
  }
  return !field.ranged || (out >= field.low_float && out <= field.high_float);
}

bool CellReader::one_string(const RowField& field, PyObject* value, Held& held, Bytes& out) {
  if (PyUnicode_CheckExact(value) && field.rule == Rule::text) {
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(value, &length);
    if (text == nullptr) {
      PyErr_Clear();  // a lone surrogate
      return false;
    }
    out = {reinterpret_cast<const std::byte*>(text), static_cast<size_t>(length)};
  } else if (PyBytes_CheckExact(value)) {
    out = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(value)),
           static_cast<size_t>(PyBytes_GET_SIZE(value))};
    if (field.rule == Rule::text && !is_utf8(out)) return false;
  } else {
    return false;
  }
  held.objects.push_back(nb::borrow(value));
  return true;
}

bool CellReader::read(const RowField& field, PyObject* value, Held& held, SlotValues& cell) const {
  if (field.rule == Rule::none) return false;
  if (field.dims.empty()) {
    cell.count = 1;
    cell.present = true;
    switch (field.rule) {
      case Rule::ints: {
        auto* out = held.arena.items<int64_t>(1);
        cell.values = out;
        return one_int(field, value, *out);
      }
      case Rule::floats: {
        auto* out = held.arena.items<float>(1);
        cell.values = out;
        return one_float(field, value, *out);
      }
      default: {
        auto* out = held.arena.items<Bytes>(1);
        cell.values = out;
        return one_string(field, value, held, *out);
      }
    }
  }
  if (Py_TYPE(value) == types_.array)
    return field.rule <= Rule::floats && array(field, value, held, cell, nullptr);
  if (field.dims.size() != 1) return false;
  if (PyList_CheckExact(value) || PyTuple_CheckExact(value)) {
    const auto count = static_cast<size_t>(Py_SIZE(value));
    if (field.dims[0] >= 0 && static_cast<size_t>(field.dims[0]) != count) return false;
    return list(field, PySequence_Fast_ITEMS(value), count, held, cell);
  }
  return false;
}

bool CellReader::list(const RowField& field, PyObject* const* items, size_t count, Held& held,
                      SlotValues& cell) const {
  cell.count = count;
  cell.present = true;
  switch (field.rule) {
    case Rule::ints: {
      auto* out = held.arena.items<int64_t>(count);
      cell.values = out;
      for (size_t i = 0; i < count; ++i)
        if (!one_int(field, items[i], out[i])) return false;
      return true;
    }
    case Rule::floats: {
      auto* out = held.arena.items<float>(count);
      cell.values = out;
      for (size_t i = 0; i < count; ++i)
        if (!one_float(field, items[i], out[i])) return false;
      return true;
    }
    default: {
      auto* out = held.arena.items<Bytes>(count);
      cell.values = out;
      for (size_t i = 0; i < count; ++i)
        if (!one_string(field, items[i], held, out[i])) return false;
      return true;
    }
  }
}

bool CellReader::array(const RowField& field, PyObject* value, Held& held, SlotValues& cell,
                       const int64_t* outer) const {
  Py_buffer view;
  if (PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0) {
    PyErr_Clear();  // of another layout, or of a dtype without a buffer
    return false;
  }
  held.views.push_back(view);  // from here on released with the rest
  const size_t extra = outer != nullptr ? 1 : 0;
  if (static_cast<size_t>(view.ndim) != field.dims.size() + extra) return false;
  if (outer != nullptr && view.shape[0] != *outer) return false;
  size_t count = 1;
  for (size_t i = 0; i < static_cast<size_t>(view.ndim); ++i) {
    if (i >= extra && field.dims[i - extra] >= 0 && field.dims[i - extra] != view.shape[i])
      return false;
    count *= static_cast<size_t>(view.shape[i]);
  }
  cell.count = count;
  cell.present = true;
  const char format = format_of(view);
  if (field.rule == Rule::floats) {
    if (format == 'f') {
      cell.values = view.buf;
      return floats_fit(field, static_cast<const float*>(view.buf), count);
    }
    if (format != 'd') return false;
    auto* out = held.arena.items<float>(count);
    cell.values = out;
    return convert_doubles(field, view.buf, count, out) && floats_fit(field, out, count);
  }
  if ((format == 'l' || format == 'q') && view.itemsize == 8) {
    cell.values = view.buf;
    return ints_fit(field, static_cast<const int64_t*>(view.buf), count);
  }
  auto* out = held.arena.items<int64_t>(count);
  cell.values = out;
  switch (format) {
    case '?':
    case 'B':
      return convert_ints<uint8_t>(field, view.buf, count, out);
    case 'b':
      return convert_ints<int8_t>(field, view.buf, count, out);
    case 'h':
      return convert_ints<int16_t>(field, view.buf, count, out);
    case 'H':
      return convert_ints<uint16_t>(field, view.buf, count, out);
    case 'i':
      return convert_ints<int32_t>(field, view.buf, count, out);
    case 'I':
      return convert_ints<uint32_t>(field, view.buf, count, out);
    case 'L':
    case 'Q':
      return view.itemsize == 8 && convert_ints<uint64_t>(field, view.buf, count, out);
    default:
      return false;
  }
}

bool CellReader::read_steps(const RowField& field, PyObject* value, Held& held, size_t count,
                            std::vector<SlotValues>& steps) const {
  if (Py_TYPE(value) != types_.array) return false;
  if (field.rule != Rule::ints && field.rule != Rule::floats) return false;
  const auto outer = static_cast<int64_t>(count);
  SlotValues whole;
  if (count == 0 || !array(field, value, held, whole, &outer)) return false;
  const size_t each = whole.count / count;
  const size_t bytes = each * (field.rule == Rule::ints ? sizeof(int64_t) : sizeof(float));
  for (size_t i = 0; i < count; ++i)
    steps.push_back({static_cast<const std::byte*>(whole.values) + i * bytes, each, true});
  return true;
}

void CellReader::take(nb::handle stored, const SlotSpec& spec, Held& held, SlotValues& cell) {
  cell.present = true;
  if (spec.kind == Kind::bytes) {
    const auto list = nb::cast<nb::list>(stored);
    auto* out = held.arena.items<Bytes>(list.size());
    cell.values = out;
    cell.count = list.size();
    for (nb::handle value : list) {
      if (!PyBytes_Check(value.ptr())) throw nb::type_error("stored strings are bytes");
      held.objects.push_back(nb::borrow(value));
      *out++ = {reinterpret_cast<const std::byte*>(PyBytes_AS_STRING(value.ptr())),
                static_cast<size_t>(PyBytes_GET_SIZE(value.ptr()))};
    }
    return;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(stored.ptr(), &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) != 0)
    throw nb::python_error();
  held.views.push_back(view);
  const char format = format_of(view);
  const bool right = spec.kind == Kind::floats
                         ? format == 'f'
                         : (format == 'l' || format == 'q') && view.itemsize == 8;
  if (!right) throw nb::type_error("stored numbers are int64 or float32");
  cell.values = view.buf;
  cell.count = static_cast<size_t>(view.len / view.itemsize);
}

}  // namespace rekord

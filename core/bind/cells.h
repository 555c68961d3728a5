// One value of a row as stored values, in the simple cases.
//
// Common, plain values are read here: exact Python and NumPy types of the declared
// kind, within the declared bounds. Everything else, and everything that must be
// refused, is left to Python (codec/encode.py), which has the messages.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <vector>

#include "encode.h"

namespace rekord {

// Memory for the values of one row, all released together.
class Arena {
 public:
  void* take(size_t bytes) {
    bytes = (bytes + 15) & ~size_t{15};
    if (bytes > left_) [[unlikely]]
      refill(bytes);
    std::byte* taken = next_;
    next_ += bytes;
    left_ -= bytes;
    return taken;
  }
  template <class Item>
  Item* items(size_t count) {
    return static_cast<Item*>(take(count * sizeof(Item)));
  }
  // Keeps one ordinary block, so that a run of rows allocates nothing.
  void clear() noexcept;

 private:
  static constexpr size_t kBlockBytes = 64 * 1024;
  void refill(size_t bytes);

  struct Block {
    std::unique_ptr<std::byte[]> memory;
    size_t size;
  };
  std::vector<Block> blocks_;
  std::byte* next_ = nullptr;
  size_t left_ = 0;
};

// Which values are taken without asking Python.
enum class Rule : uint8_t { none = 0, ints = 1, floats = 2, bytes = 3, text = 4 };

// How one column is read.
struct RowField {
  nanobind::object name;
  uint32_t first = 0;  // of its slots
  uint32_t slots = 1;
  Rule rule = Rule::none;
  std::vector<int64_t> dims;  // of its shape, -1 if a size varies
  int64_t low = 0;            // of ints
  int64_t high = 0;
  float low_float = 0;  // of floats, where `ranged`
  float high_float = 0;
  bool ranged = false;
  bool exact = false;
  nanobind::object names;  // a dict of class ids by name, or None
};

// NumPy's own types, by identity.
struct NumpyTypes {
  NumpyTypes();
  bool is_int(PyTypeObject* type) const noexcept;
  bool is_float(PyTypeObject* type) const noexcept { return type == float64 || type == float32; }

  PyTypeObject* array;
  PyTypeObject* float64;
  PyTypeObject* float32;
  PyTypeObject* boolean;
  std::vector<PyTypeObject*> ints;
  std::vector<nanobind::object> owners;
};

// What must live until a row has been written.
struct Held {
  Arena arena;
  std::vector<nanobind::object> objects;
  std::vector<Py_buffer> views;

  ~Held() { clear(); }
  void clear() noexcept;
};

class CellReader {
 public:
  explicit CellReader(const NumpyTypes& types) noexcept : types_(types) {}

  // The value as the cell of the field's one slot; false if Python must decide.
  bool read(const RowField& field, PyObject* value, Held& held, SlotValues& cell) const;

  // A whole array of steps; false if each step must be inspected.
  bool read_steps(const RowField& field, PyObject* value, Held& held, size_t count,
                  std::vector<SlotValues>& steps) const;

  // What Python made of a value: an int64 or float32 array, or a list of bytes.
  static void take(nanobind::handle stored, const SlotSpec& spec, Held& held, SlotValues& cell);

 private:
  bool one_int(const RowField& field, PyObject* value, int64_t& out) const;
  bool one_float(const RowField& field, PyObject* value, float& out) const;
  static bool one_string(const RowField& field, PyObject* value, Held& held, Bytes& out);
  bool list(const RowField& field, PyObject* const* items, size_t count, Held& held,
            SlotValues& cell) const;
  // An array of the declared shape, with one more dimension in front where `outer`.
  bool array(const RowField& field, PyObject* value, Held& held, SlotValues& cell,
             const int64_t* outer) const;

  const NumpyTypes& types_;
};

}  // namespace rekord

// NumPy arrays over memory of ours, kept alive by an owner.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <type_traits>

namespace rekord {

// The two functions of NumPy's C API that create an array over existing memory, about ten times
// as fast as an import through DLPack or the buffer protocol: a batch has one array per column.
// Entries of the table keep their index in all versions of NumPy; its headers, which would make
// NumPy a build requirement, use the same ones.
struct NumpyApi {
  static constexpr int kArrayType = 2;
  static constexpr int kNewFromDescr = 94;
  static constexpr int kSetBaseObject = 282;
  static constexpr int kCarray = 0x1 | 0x100;  // NPY_ARRAY_C_CONTIGUOUS, NPY_ARRAY_ALIGNED
  static constexpr int kWriteable = 0x400;     // NPY_ARRAY_WRITEABLE

  using NewFromDescr = PyObject*(PyTypeObject*, PyObject* dtype, int dimensions,
                                 const Py_ssize_t* shape, const Py_ssize_t* strides, void* data,
                                 int flags, PyObject*);
  using SetBaseObject = int(PyObject* array, PyObject* base);

  PyTypeObject* array_type;
  NewFromDescr* new_from_descr;
  SetBaseObject* set_base_object;

  static const NumpyApi& get() {
    static const NumpyApi api = load();
    return api;
  }

 private:
  static NumpyApi load() {
    namespace nb = nanobind;
    // Where NumPy 1 and NumPy 2 have it.
    const bool is_second = nb::hasattr(nb::module_::import_("numpy"), "_core");
    const char* name = is_second ? "numpy._core.multiarray" : "numpy.core.multiarray";
    const nb::object capsule = nb::module_::import_(name).attr("_ARRAY_API");
    auto** table = static_cast<void**>(PyCapsule_GetPointer(capsule.ptr(), nullptr));
    if (table == nullptr) throw nb::python_error();
    return {static_cast<PyTypeObject*>(table[kArrayType]),
            reinterpret_cast<NewFromDescr*>(table[kNewFromDescr]),
            reinterpret_cast<SetBaseObject*>(table[kSetBaseObject])};
  }
};

// The dtype of an item, kept for the life of the process. By name: what Python calls int64 is C's
// long on some systems and long long on others, which NumPy distinguishes by type.
template <class Item>
PyObject* dtype_of() {
  namespace nb = nanobind;
  static PyObject* const dtype = [] {
    const char* kind = std::is_floating_point_v<Item> ? "f" : std::is_signed_v<Item> ? "i" : "u";
    const std::string name =
        std::is_same_v<Item, bool> ? "bool" : kind + std::to_string(sizeof(Item));
    return nb::module_::import_("numpy").attr("dtype")(name.c_str()).release().ptr();
  }();
  return dtype;
}

// `owner` outlives the array.
template <class Item>
nanobind::object array_over(Item* data, size_t count, nanobind::handle owner) {
  namespace nb = nanobind;
  static_assert(!std::is_const_v<Item>);
  const NumpyApi& api = NumpyApi::get();
  const auto shape = static_cast<Py_ssize_t>(count);
  // The dtype and the base are taken over, even where the call fails.
  PyObject* dtype = Py_NewRef(dtype_of<Item>());
  nb::object array =
      nb::steal(api.new_from_descr(api.array_type, dtype, 1, &shape, nullptr, data,
                                   NumpyApi::kCarray | NumpyApi::kWriteable, nullptr));
  if (!array.is_valid() || api.set_base_object(array.ptr(), nb::borrow(owner).release().ptr()) != 0)
    throw nb::python_error();
  return array;
}

}  // namespace rekord

// NumPy arrays over memory of ours, kept alive by an owner.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <type_traits>

namespace rekord {

// `owner` outlives the array. What Python calls int64 is C's long on some systems
// and long long on others, and NumPy distinguishes the two by type but not by
// dtype: arrays have the type that users expect.
template <class Item>
nanobind::object array_over(Item* data, size_t count, nanobind::handle owner) {
  namespace nb = nanobind;
  nb::object array = nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(data, {count}, owner));
  if constexpr (std::is_same_v<Item, int64_t>) {
    // Kept for the life of the process: a dtype is immutable.
    static PyObject* int64 = nb::module_::import_("numpy").attr("dtype")("int64").release().ptr();
    return array.attr("view")(nb::handle(int64));
  }
  return array;
}

}  // namespace rekord

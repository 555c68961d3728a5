// Finished buffers as NumPy arrays that own them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "columns.h"
#include "plan.h"

namespace rekord {

// (values, offsets or None, valid or None) of each slot; None if the plan skips it.
nanobind::list columns_to_list(const Plan& plan, std::vector<Column>&& columns);

template <class Item>
nanobind::object output_array(const BlockRef& block, size_t count) {
  namespace nb = nanobind;
  nb::capsule owner(new BlockRef(block),
                    [](void* p) noexcept { delete static_cast<BlockRef*>(p); });
  auto* data = reinterpret_cast<Item*>(block->data());
  return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(data, {count}, owner));
}

}  // namespace rekord

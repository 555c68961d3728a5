// Finished buffers as NumPy arrays that own them.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "pool.h"

namespace rekord {

template <class Item>
nanobind::object output_array(const BlockRef& block, size_t count) {
  namespace nb = nanobind;
  nb::capsule owner(new BlockRef(block),
                    [](void* p) noexcept { delete static_cast<BlockRef*>(p); });
  auto* data = reinterpret_cast<Item*>(block->data());
  return nb::cast(nb::ndarray<nb::numpy, Item, nb::ndim<1>>(data, {count}, owner));
}

}  // namespace rekord

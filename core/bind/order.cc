// Orders for Python, many positions at a time.
#include "order.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/vector.h>

#include "bind/arrays.h"
#include "bind/bind.h"

namespace nb = nanobind;

namespace rekord {
namespace {

using Positions = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr uint64_t kMost = uint64_t{1} << 62;

// The record at each position, in an array of its own.
template <class Order>
nb::object records_at(const Positions& positions, uint64_t n, Order order) {
  const size_t count = positions.shape(0);
  const int64_t* in = positions.data();
  for (size_t i = 0; i < count; ++i)
    if (in[i] < 0 || static_cast<uint64_t>(in[i]) >= n)
      throw nb::index_error("a position outside of the order");
  auto* out = new int64_t[count + 1];  // never of no bytes
  nb::capsule owner(out, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  {
    nb::gil_scoped_release unlocked;
    for (size_t i = 0; i < count; ++i)
      out[i] = static_cast<int64_t>(order(static_cast<uint64_t>(in[i])));
  }
  return array_over(out, count, owner);
}

void check_size(uint64_t n) {
  if (n > kMost) throw nb::value_error("more than 2^62 records");
}

}  // namespace

void bind_order(nb::module_& module) {
  module.def(
      "order_key", [](const std::vector<uint64_t>& words) { return order_key(words); },
      nb::arg("words"), "One key for a seed, an epoch, and whatever else tells orders apart.");
  module.def(
      "permute",
      [](const Positions& positions, uint64_t n, uint64_t key) {
        check_size(n);
        return records_at(positions, n, Permutation(n, key));
      },
      nb::arg("positions"), nb::arg("n"), nb::arg("key"),
      "What stands at each position of a permutation of [0, n).");
  module.def(
      "permute_blocks",
      [](const Positions& positions, uint64_t n, uint64_t block, uint64_t window, uint64_t lanes,
         uint64_t key) {
        check_size(n);
        return records_at(positions, n, BlockOrder(n, block, window, lanes, key));
      },
      nb::arg("positions"), nb::arg("n"), nb::arg("block"), nb::arg("window"), nb::arg("lanes"),
      nb::arg("key"),
      "What stands at each position where whole blocks are shuffled, and records inside\n"
      "windows of so many blocks.");
}

}  // namespace rekord

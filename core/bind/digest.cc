// Digests of the rows of a column for Python.
#include "digest.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>

#include "bind/bind.h"
#include "bind/strings.h"

namespace nb = nanobind;

namespace rekord {
namespace {

template <class Item>
using Array = nb::ndarray<const Item, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Rows = nb::ndarray<uint64_t, nb::shape<-1, 2>, nb::c_contig, nb::device::cpu>;

// Where the values of each row lie.
struct Bounds {
  const int64_t* offsets;  // null: one value a row
  const bool* valid;       // null: all

  size_t begin(size_t row) const noexcept {
    return offsets ? static_cast<size_t>(offsets[row]) : row;
  }
  size_t end(size_t row) const noexcept {
    return offsets ? static_cast<size_t>(offsets[row + 1]) : row + 1;
  }
};

void mix_into(uint64_t* into, const Digest& next) noexcept {
  const Digest mixed = mix({into[0], into[1]}, next);
  into[0] = mixed.low;
  into[1] = mixed.high;
}

template <class OfRow>
void mix_rows(const Bounds& bounds, size_t rows, uint64_t* into, OfRow of_row) noexcept {
  for (size_t row = 0; row < rows; ++row)
    if (bounds.valid == nullptr || bounds.valid[row])
      mix_into(into + 2 * row, of_row(bounds.begin(row), bounds.end(row)));
}

Digest strings_digest(const StringColumn& strings, size_t begin, size_t end,
                      uint64_t seed) noexcept {
  if (end == begin + 1) return digest(strings.at(begin), seed);
  Digest all{seed, end - begin};
  for (size_t i = begin; i < end; ++i) all = mix(all, digest(strings.at(i), seed));
  return all;
}

// Checks that every row's values are among `count`, so that nothing outside is read.
void check_bounds(const Bounds& bounds, size_t rows, size_t count) {
  if (bounds.offsets == nullptr) {
    if (count < rows) throw nb::value_error("fewer values than rows");
    return;
  }
  int64_t before = 0;
  for (size_t i = 0; i <= rows; ++i) {
    if (bounds.offsets[i] < before || static_cast<uint64_t>(bounds.offsets[i]) > count)
      throw nb::value_error("offsets that go down, or past the values");
    before = bounds.offsets[i];
  }
}

void digest_column(uint64_t seed, nb::object values, std::optional<Array<int64_t>> offsets,
                   std::optional<Array<bool>> valid, Rows into) {
  const size_t rows = into.shape(0);
  if ((offsets && offsets->shape(0) != rows + 1) || (valid && valid->shape(0) != rows))
    throw nb::value_error("offsets or valid of another number of rows");
  const Bounds bounds{offsets ? offsets->data() : nullptr, valid ? valid->data() : nullptr};
  uint64_t* out = into.data();
  if (nb::isinstance<StringColumn>(values)) {
    const auto& strings = nb::cast<const StringColumn&>(values);
    check_bounds(bounds, rows, strings.size());
    nb::gil_scoped_release unlocked;
    mix_rows(bounds, rows, out,
             [&](size_t begin, size_t end) { return strings_digest(strings, begin, end, seed); });
    return;
  }
  const auto numbers =
      nb::cast<nb::ndarray<nb::ro, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(values);
  const size_t item_bytes = numbers.itemsize();
  const auto* data = static_cast<const std::byte*>(numbers.data());
  check_bounds(bounds, rows, numbers.shape(0));
  nb::gil_scoped_release unlocked;
  mix_rows(bounds, rows, out, [&](size_t begin, size_t end) {
    const std::byte* at = data + begin * item_bytes;
    // One number, which is what most rows have, needs no chain of its own.
    if (end == begin + 1 && item_bytes == 8) return digest(load_le<uint64_t>(at), seed);
    if (end == begin + 1 && item_bytes == 4) return digest(uint64_t{load_le<uint32_t>(at)}, seed);
    return digest({at, (end - begin) * item_bytes}, seed);
  });
}

}  // namespace

void bind_digest(nb::module_& module) {
  module.def(
      "digest_column", &digest_column, nb::arg("seed"), nb::arg("values"),
      nb::arg("offsets").none(), nb::arg("valid").none(), nb::arg("into"),
      "Mix what each row has in one column into the digests of the rows.\n\n"
      "`values` are an array or a StringColumn, `offsets` and `valid` as decoders give them;\n"
      "`into` is a uint64 array of two a row. Rows that are not valid stay as they are.");
}

}  // namespace rekord

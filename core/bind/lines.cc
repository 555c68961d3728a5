// The rows of text files, for Python.
#include "lines.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/buffer.h"

namespace nb = nanobind;

namespace rekord {
namespace {

nb::object to_array(std::vector<int64_t>&& numbers) {
  auto owned = std::make_unique<std::vector<int64_t>>(std::move(numbers));
  int64_t* data = owned->data();
  const size_t count = owned->size();
  nb::capsule owner(owned.release(),
                    [](void* held) noexcept { delete static_cast<std::vector<int64_t>*>(held); });
  return array_over(data, count, owner);
}

}  // namespace

void bind_lines(nb::module_& module) {
  nb::class_<RowScanner>(module, "RowScanner", "Where the rows of a text file begin.")
      .def(
          "__init__",
          [](RowScanner* self, bool fields, char delimiter, uint64_t offset, uint64_t line) {
            new (self) RowScanner({.fields = fields, .delimiter = delimiter}, offset, line);
          },
          nb::arg("fields"), nb::arg("delimiter"), nb::arg("offset"), nb::arg("line"))
      .def_prop_ro("offset", &RowScanner::offset)
      .def_prop_ro("line", &RowScanner::line)
      .def_prop_ro("in_quotes", &RowScanner::in_quotes)
      .def(
          "feed",
          [](RowScanner& self, nb::handle block) {
            const Buffer buffer(block);
            std::vector<int64_t> starts, lines;
            {
              nb::gil_scoped_release release;
              self.feed(buffer.bytes(), starts, lines);
            }
            return nb::make_tuple(to_array(std::move(starts)), to_array(std::move(lines)));
          },
          nb::arg("block"), "(first bytes, lines) of the rows that begin in this block.");

  nb::class_<FieldSurvey>(module, "FieldSurvey", "What the fields of each column can be taken for.")
      .def(
          "__init__",
          [](FieldSurvey* self, char delimiter, size_t columns, std::vector<std::string> missing) {
            new (self)
                FieldSurvey({.fields = true, .delimiter = delimiter}, columns, std::move(missing));
          },
          nb::arg("delimiter"), nb::arg("columns"), nb::arg("missing"))
      .def(
          "feed",
          [](FieldSurvey& self, nb::handle rows) {
            const Buffer buffer(rows);
            nb::gil_scoped_release release;
            self.feed(buffer.bytes());
          },
          nb::arg("rows"))
      .def_prop_ro("rows", &FieldSurvey::rows)
      .def_prop_ro("irregular", &FieldSurvey::irregular)
      .def(
          "counts",
          [](const FieldSurvey& self) {
            nb::list out;
            for (const FieldSurvey::Counts& column : self.columns()) {
              nb::list forms;
              for (uint64_t count : column) forms.append(count);
              out.append(nb::tuple(forms));
            }
            return out;
          },
          "For each column, how many fields were missing, whole, padded, large, real, nan, truth, "
          "text.");
}

}  // namespace rekord

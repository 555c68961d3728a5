// Example and SequenceExample as Python values, without a schema.
#include <type_traits>

#include "bind/bind.h"
#include "bind/buffer.h"
#include "survey.h"

namespace nb = nanobind;

namespace rekord {
namespace {

// An array of NumPy's own: one of ours needs an owner and a view too, which for a value or
// two is a multiple of its size, and a record may have a million keys.
template <class Number>
nb::object to_array(const FeatureView& feature,
                    size_t (*copy)(const FeatureView&, std::span<Number>) noexcept) {
  // Kept for the life of the process.
  static PyObject* const empty =
      nb::object(nb::module_::import_("numpy").attr("empty")).release().ptr();
  static PyObject* const dtype =
      nb::module_::import_("numpy")
          .attr("dtype")(std::is_same_v<Number, float> ? "float32" : "int64")
          .release()
          .ptr();
  nb::object array = nb::handle(empty)(feature.count, nb::handle(dtype));
  Py_buffer view;
  if (PyObject_GetBuffer(array.ptr(), &view, PyBUF_WRITABLE) != 0) throw nb::python_error();
  copy(feature, {static_cast<Number*>(view.buf), feature.count});
  PyBuffer_Release(&view);
  return array;
}

nb::object to_python(const FeatureView& feature) {
  switch (feature.kind) {
    case Kind::ints:
      return to_array<int64_t>(feature, copy_ints);
    case Kind::floats:
      return to_array<float>(feature, copy_floats);
    case Kind::bytes: {
      nb::list values;
      for_each_bytes(feature,
                     [&](Bytes value) { values.append(nb::bytes(value.data(), value.size())); });
      return values;
    }
    case Kind::unset:
      break;
  }
  return nb::none();
}

// Builds the dicts. A key that comes again replaces what was there.
struct Builder {
  nb::dict context;
  nb::dict lists;
  nb::list current;

  static nb::str name(std::string_view key) { return nb::str(key.data(), key.size()); }

  void feature(std::string_view key, const FeatureView& view) {
    context[name(key)] = to_python(view);
  }
  void begin_steps(std::string_view key) {
    current = nb::list();
    lists[name(key)] = current;
  }
  void step(const FeatureView& view) { current.append(to_python(view)); }
  void end_steps() noexcept {}
};

nb::object decode_payload(const nb::bytes& payload, bool sequence) {
  const Bytes bytes(static_cast<const std::byte*>(payload.data()), payload.size());
  Scratch scratch;
  Problem problem;
  {
    // Everything is proven before the first Python object is made.
    nb::gil_scoped_release unlocked;
    SurveyScratch survey_scratch;
    problem = survey(bytes, sequence, survey_scratch).problem;
  }
  if (problem) return nb::cast(problem);
  Builder builder;
  Walk<Builder> walk(bytes, builder, scratch);
  if (sequence) {
    walk.sequence();
    return nb::make_tuple(builder.context, builder.lists);
  }
  walk.example();
  return std::move(builder.context);
}

}  // namespace

void bind_examples(nb::module_& module) {
  module.def(
      "decode_example", [](const nb::bytes& payload) { return decode_payload(payload, false); },
      nb::arg("payload"), nb::sig("def decode_example(payload: bytes) -> dict | Problem"),
      "An Example as a dict, or the Problem that it has.");
  module.def(
      "decode_sequence", [](const nb::bytes& payload) { return decode_payload(payload, true); },
      nb::arg("payload"),
      nb::sig("def decode_sequence(payload: bytes) -> tuple[dict, dict] | Problem"),
      "A SequenceExample as (context, lists of steps), or the Problem that it has.");
}

}  // namespace rekord

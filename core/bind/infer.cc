// Evidence about the keys of many payloads, for Python.
#include "infer.h"

#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/extents.h"

namespace nb = nanobind;

namespace rekord {
namespace {

struct Taken {
  size_t records = 0;
  uint64_t bytes = 0;
  Problem problem;
};

// Payload after payload, until one is refused, there is no room for a key, or
// enough has been read: `most_records`, or the one that completes `most_bytes`.
Taken feed(Inference& inference, const Buffer& buffer, const Extents& extents, bool sequence,
           uint64_t most_records, uint64_t most_bytes) {
  Taken taken;
  for (const Extent& item : extents.items) {
    if (taken.records >= most_records || taken.bytes >= most_bytes) break;
    taken.problem = inference.add(buffer.part(item.offset, item.offset + item.length), sequence);
    if (taken.problem) break;
    ++taken.records;
    taken.bytes += item.length;
    if (inference.overflowed()) break;
  }
  return taken;
}

template <class Number>
nb::object span_or_none(const Span<Number>& span) {
  if (span.least > span.most) return nb::none();
  return nb::make_tuple(span.least, span.most);
}

nb::dict to_python(const KeyFacts& facts) {
  const Values& values = facts.values;
  nb::list kinds;
  for (const KindCount& kind : values.kinds)
    kinds.append(nb::make_tuple(kind.features, span_or_none(kind.values)));
  nb::dict out;
  out["records"] = facts.records;
  out["steps"] = span_or_none(facts.steps);
  out["kinds"] = kinds;
  out["first"] = static_cast<int>(values.first);
  out["other"] = static_cast<int>(facts.other);
  out["other_record"] = facts.other_record;
  out["ints"] = span_or_none(values.ints);
  out["floats"] = span_or_none(values.floats);
  out["finite"] = values.finite;
  out["nan"] = values.nan;
  out["infinite"] = values.infinite;
  out["strings"] = values.strings;
  out["string_bytes"] = span_or_none(values.string_bytes);
  out["utf8"] = values.utf8;
  out["jpeg"] = values.jpeg;
  out["png"] = values.png;
  return out;
}

nb::dict to_python(const Inference::Keys& keys) {
  nb::dict out;
  for (const auto& [name, key] : keys)
    if (key.facts.records > 0) out[nb::str(name.data(), name.size())] = to_python(key.facts);
  return out;
}

}  // namespace

void bind_infer(nb::module_& module) {
  nb::class_<Inference>(module, "Inference", "What the values under each key have in common.")
      .def(nb::init<size_t, size_t>(), nb::arg("most_keys") = Inference::kMostKeys,
           nb::arg("most_key_bytes") = Inference::kMostKeyBytes)
      .def_prop_ro("records", &Inference::records)
      .def_prop_ro("overflowed", &Inference::overflowed,
                   "Whether there was a key too many; from then on nothing can be trusted.")
      .def(
          "feed",
          [](Inference& self, nb::handle buffer, const Extents& extents, bool sequence,
             uint64_t most_records, uint64_t most_bytes) {
            Buffer view(buffer);
            Taken taken;
            {
              nb::gil_scoped_release unlocked;
              taken = feed(self, view, extents, sequence, most_records, most_bytes);
            }
            nb::object problem = taken.problem ? nb::cast(taken.problem) : nb::none();
            return nb::make_tuple(taken.records, taken.bytes, problem);
          },
          nb::arg("buffer"), nb::arg("extents"), nb::arg("sequence"), nb::arg("most_records"),
          nb::arg("most_bytes"),
          "Read the payloads of a stretch.\n\n"
          "Gives (how many, their bytes, problem of the next or None).")
      .def(
          "add",
          [](Inference& self, nb::handle payload, bool sequence) {
            Buffer view(payload);
            Problem problem;
            {
              nb::gil_scoped_release unlocked;
              problem = self.add(view.bytes(), sequence);
            }
            return problem ? nb::cast(problem) : nb::none();
          },
          nb::arg("payload"), nb::arg("sequence"), "Read one payload. Gives its problem or None.")
      .def(
          "context", [](const Inference& self) { return to_python(self.context()); },
          "{key: facts} of Examples and contexts, sorted by the keys' bytes.")
      .def(
          "steps", [](const Inference& self) { return to_python(self.steps()); },
          "{key: facts} of feature lists, sorted by the keys' bytes.");
}

}  // namespace rekord

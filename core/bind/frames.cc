// Frames and payloads for Python: scan, cut out, survey, find again after damage.
#include <algorithm>
#include <cstdint>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/extents.h"
#include "crc32c.h"
#include "frame.h"
#include "kind.h"
#include "survey.h"

namespace nb = nanobind;

namespace rekord {
namespace {

nb::tuple scan_frames(nb::handle buffer, size_t begin, size_t end, uint64_t remaining) {
  Buffer view(buffer);
  Extents extents;
  Scan result;
  {
    nb::gil_scoped_release unlocked;
    result = scan(view.part(begin, end), remaining, extents.items);
    for (Extent& item : extents.items) item.offset += begin;
  }
  nb::object problem = result.problem ? nb::cast(result.problem) : nb::none();
  return nb::make_tuple(nb::cast(std::move(extents)), result.consumed, result.needed, problem);
}

nb::list cut_payloads(nb::handle buffer, const Extents& extents) {
  Buffer view(buffer);
  nb::list out;
  for (const Extent& item : extents.items) {
    const Bytes payload = view.part(item.offset, item.offset + item.length);
    out.append(nb::bytes(payload.data(), payload.size()));
  }
  return out;
}

nb::tuple find_next(nb::handle buffer, size_t begin, size_t end, uint64_t remaining,
                    uint64_t budget) {
  Buffer view(buffer);
  Resync result;
  {
    nb::gil_scoped_release unlocked;
    result = find_frame(view.part(begin, end), 0, remaining, budget);
  }
  return nb::make_tuple(result.found, result.offset, result.needed, result.spent);
}

template <class Of>
nb::object column_of(const Extents& extents, size_t begin, size_t end, Of of) {
  auto* values = new int64_t[end - begin + 1];  // never of no bytes
  nb::capsule owner(values, [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
  for (size_t i = begin; i < end; ++i)
    values[i - begin] = static_cast<int64_t>(of(extents.items[i]));
  return array_over(values, end - begin, owner);
}

struct Surveyed {
  size_t index;
  Survey survey;
};

// {oddity: the feature that has it, or None}
nb::dict name_oddities(const Survey& survey) {
  nb::dict out;
  for (uint32_t bit = 0; bit < odd::kinds; ++bit) {
    if ((survey.oddities >> bit & 1) == 0) continue;
    const std::string_view key = survey.features[bit];
    nb::object feature = nb::none();
    if (key.data() != nullptr) feature = nb::str(key.data(), key.size());
    out[nb::int_(1u << bit)] = feature;
  }
  return out;
}

nb::list survey_payloads(nb::handle buffer, const Extents& extents, bool sequence, size_t begin,
                         size_t end) {
  Buffer view(buffer);
  std::vector<Surveyed> rows;
  {
    nb::gil_scoped_release unlocked;
    SurveyScratch scratch;
    end = std::min(end, extents.items.size());
    for (size_t i = begin; i < end; ++i) {
      const Extent& item = extents.items[i];
      Survey result = survey(view.part(item.offset, item.offset + item.length), sequence, scratch);
      if (result.problem || (result.oddities & ~odd::unknown_top) != 0) rows.push_back({i, result});
    }
  }
  nb::list out;
  for (const Surveyed& row : rows) {
    nb::object problem = row.survey.problem ? nb::cast(row.survey.problem) : nb::none();
    out.append(nb::make_tuple(row.index, problem, name_oddities(row.survey)));
  }
  return out;
}

nb::list recognise_payloads(nb::handle buffer, const Extents& extents, size_t limit) {
  Buffer view(buffer);
  nb::list out;
  for (const Extent& item : extents.items) {
    if (limit-- == 0) break;
    out.append(recognise(view.part(item.offset, item.offset + item.length)));
  }
  return out;
}

nb::bytes frame_payload(nb::handle payload) {
  Buffer view(payload);
  const Bytes bytes = view.bytes();
  PyObject* out =
      PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(bytes.size() + kFramingBytes));
  if (out == nullptr) throw nb::python_error();
  write_frame(reinterpret_cast<std::byte*>(PyBytes_AS_STRING(out)), bytes);
  return nb::steal<nb::bytes>(out);
}

}  // namespace

void bind_frames(nb::module_& module) {
  nb::enum_<PayloadKind>(module, "PayloadKind")
      .value("EXAMPLE", PayloadKind::example)
      .value("SEQUENCE", PayloadKind::sequence)
      .value("LIST_WITH_CONTEXT", PayloadKind::list_with_context)
      .value("EVENT", PayloadKind::event)
      .value("TEXT", PayloadKind::text)
      .value("PROTO", PayloadKind::proto)
      .value("OTHER", PayloadKind::other);

  nb::class_<Extents>(module, "Extents", "Where the payloads of a scanned stretch lie.")
      .def("__len__", [](const Extents& self) { return self.items.size(); })
      .def(
          "offset",
          [](const Extents& self, size_t i) {
            if (i >= self.items.size()) throw nb::index_error();
            return self.items[i].offset - kHeaderBytes;
          },
          nb::arg("index"), "Where a frame begins in the scanned buffer.")
      .def(
          "length",
          [](const Extents& self, size_t i) {
            if (i >= self.items.size()) throw nb::index_error();
            return self.items[i].length;
          },
          nb::arg("index"), "How many bytes a payload has.")
      .def(
          "payload_bytes",
          [](const Extents& self) {
            uint64_t total = 0;
            for (const Extent& item : self.items) total += item.length;
            return total;
          },
          "How many bytes all payloads have.")
      .def(
          "arrays",
          [](const Extents& self, size_t begin, size_t end) {
            end = std::min(end, self.items.size());
            begin = std::min(begin, end);
            return nb::make_tuple(
                column_of(self, begin, end,
                          [](const Extent& item) { return item.offset - kHeaderBytes; }),
                column_of(self, begin, end, [](const Extent& item) { return item.length; }));
          },
          nb::arg("begin"), nb::arg("end"),
          "(where the frames begin in the scanned buffer, bytes of their payloads) as arrays.");

  module.attr("HEADER_BYTES") = kHeaderBytes;
  module.attr("FRAMING_BYTES") = kFramingBytes;
  module.attr("ODD_SPLIT_LIST") = odd::split_list;
  module.attr("ODD_TWO_KINDS") = odd::two_kinds;
  module.attr("ODD_ENTRY_FORM") = odd::entry_form;
  module.attr("ODD_ENTRY_SWAPPED") = odd::entry_swapped;
  module.attr("ODD_UNKNOWN_INNER") = odd::unknown_inner;
  module.attr("ODD_DUPLICATE_KEY") = odd::duplicate_key;

  module.def("scan", &scan_frames, nb::arg("buffer"), nb::arg("begin"), nb::arg("end"),
             nb::arg("remaining"),
             "Verify the frames at the front of buffer[begin:end].\n\n"
             "Gives (extents, bytes consumed, bytes the next frame needs, problem or None).");
  module.def("payloads", &cut_payloads, nb::arg("buffer"), nb::arg("extents"),
             "The payloads of a scanned stretch, copied out.");
  module.def("find_frame", &find_next, nb::arg("buffer"), nb::arg("begin"), nb::arg("end"),
             nb::arg("remaining"), nb::arg("budget"),
             "FrameProbe for a whole frame in buffer[begin:end].\n\n"
             "Gives (found, offset from begin, bytes from there that would settle it, bytes of\n"
             "payloads that were verified in vain).");
  module.def("survey", &survey_payloads, nb::arg("buffer"), nb::arg("extents"), nb::arg("sequence"),
             nb::arg("begin") = 0, nb::arg("end") = SIZE_MAX,
             "The payloads from `begin` to `end` of a stretch that are not plainly good:\n"
             "(index, problem or None, {oddity: feature or None}) each.");
  module.def("recognise", &recognise_payloads, nb::arg("buffer"), nb::arg("extents"),
             nb::arg("limit"), "Which message each of the first payloads holds.");
  module.def(
      "recognise_payload", [](nb::handle payload) { return recognise(Buffer(payload).bytes()); },
      nb::arg("payload"), "Which message a payload holds.");
  module.def("frame", &frame_payload, nb::arg("payload"), "A payload with its framing.");
  module.def(
      "header_agrees",
      [](nb::handle data) {
        const Buffer view(data);
        return view.bytes().size() >= kHeaderBytes && header_agrees(view.bytes().data());
      },
      nb::arg("data"), "True where the first twelve bytes could begin a frame.");
  module.def(
      "crc32c",
      [](nb::handle data) {
        const Buffer view(data);
        const Bytes bytes = view.bytes();
        nb::gil_scoped_release unlocked;
        return crc32c(bytes);
      },
      nb::arg("data"), "CRC-32C, not masked.");
  module.def(
      "masked_crc32c",
      [](nb::handle data) {
        const Buffer view(data);
        const Bytes bytes = view.bytes();
        nb::gil_scoped_release unlocked;
        return masked_crc32c(bytes);
      },
      nb::arg("data"), "CRC-32C as record files store it.");
}

}  // namespace rekord

#include "bind/bind.h"
#include "crc32c.h"
#include "fault.h"
#include "varint.h"

namespace nb = nanobind;
using rekord::Fault;
using rekord::Problem;

NB_MODULE(_core, module) {
  module.doc() = "The native core: facts about bytes, no sentences.";
  // A process that ends while an iterator is alive is no reason for noise.
  nb::set_leak_warnings(false);

  nb::enum_<Fault>(module, "Fault")
      .value("LENGTH_CRC", Fault::length_crc)
      .value("PAYLOAD_CRC", Fault::payload_crc)
      .value("CUT_HEADER", Fault::cut_header)
      .value("CUT_RECORD", Fault::cut_record)
      .value("IMPOSSIBLE_LENGTH", Fault::impossible_length)
      .value("VARINT", Fault::varint)
      .value("LENGTH", Fault::length)
      .value("TAG", Fault::tag)
      .value("GROUP", Fault::group)
      .value("KEY_UTF8", Fault::key_utf8)
      .value("PACKED_FLOATS", Fault::packed_floats)
      .value("DEPTH", Fault::depth)
      .value("MISSING", Fault::missing)
      .value("WRONG_KIND", Fault::wrong_kind)
      .value("WRONG_COUNT", Fault::wrong_count)
      .value("NOT_UTF8", Fault::not_utf8)
      .value("UNKNOWN_KEY", Fault::unknown_key);

  nb::class_<Problem>(module, "Problem", "What is wrong, at which byte, and two numbers.")
      .def_ro("fault", &Problem::fault)
      .def_ro("at", &Problem::at)
      .def_ro("expected", &Problem::expected)
      .def_ro("found", &Problem::found);

  module.def(
      "implementations",
      [] {
        return nb::make_tuple(rekord::CrcImplementation::best().name,
                              rekord::VarintImplementation::best().name);
      },
      nb::sig("def implementations() -> tuple[str, str]"),
      "The implementations of CRC32C and of packed varints that are in use.");

  rekord::bind_frames(module);
  rekord::bind_examples(module);
  rekord::bind_columns(module);
  rekord::bind_digest(module);
  rekord::bind_encode(module);
  rekord::bind_rows(module);
  rekord::bind_infer(module);
  rekord::bind_images(module);
  rekord::bind_lines(module);
  rekord::bind_order(module);
}

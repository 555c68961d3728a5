// Encoded pictures and the pixels of masks, for Python.
#include <memory>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/buffer.h"
#include "mask.h"
#include "picture.h"

namespace nb = nanobind;

namespace rekord {
namespace {

nb::object name_of(uint32_t name) {
  const char letters[] = {static_cast<char>(name >> 24), static_cast<char>(name >> 16),
                          static_cast<char>(name >> 8), static_cast<char>(name)};
  return nb::bytes(letters, 4);
}

void bind_facts(nb::module_& module) {
  nb::enum_<PictureFormat>(module, "PictureFormat")
      .value("NONE", PictureFormat::none)
      .value("JPEG", PictureFormat::jpeg)
      .value("PNG", PictureFormat::png)
      .value("GIF", PictureFormat::gif)
      .value("BMP", PictureFormat::bmp)
      .value("WEBP", PictureFormat::webp)
      .value("TIFF", PictureFormat::tiff);
  nb::enum_<Colour>(module, "Colour")
      .value("UNKNOWN", Colour::unknown)
      .value("GREY", Colour::grey)
      .value("GREY_ALPHA", Colour::grey_alpha)
      .value("RGB", Colour::rgb)
      .value("RGBA", Colour::rgba)
      .value("PALETTE", Colour::palette)
      .value("CMYK", Colour::cmyk)
      .value("YCCK", Colour::ycck);
  nb::enum_<PictureFault>(module, "PictureFault")
      .value("NONE", PictureFault::none)
      .value("EMPTY", PictureFault::empty)
      .value("NOT_A_PICTURE", PictureFault::not_a_picture)
      .value("CUT", PictureFault::cut)
      .value("CRC", PictureFault::crc)
      .value("BAD_MARKER", PictureFault::bad_marker)
      .value("BAD_CHUNK", PictureFault::bad_chunk)
      .value("ZERO_SIZE", PictureFault::zero_size)
      .value("IMPOSSIBLE_SIZE", PictureFault::impossible_size);
  nb::class_<PictureFacts>(module, "PictureFacts", "What an encoded picture says of itself.")
      .def_ro("format", &PictureFacts::format)
      .def_ro("colour", &PictureFacts::colour)
      .def_ro("width", &PictureFacts::width)
      .def_ro("height", &PictureFacts::height)
      .def_ro("channels", &PictureFacts::channels)
      .def_ro("bits", &PictureFacts::bits)
      .def_ro("orientation", &PictureFacts::orientation, "EXIF's, 1 to 8; 0 where it does not say.")
      .def_ro("interlaced", &PictureFacts::interlaced)
      .def_ro("end", &PictureFacts::end,
              "Where the picture ends; 0 where it was not walked to its end.")
      .def_ro("fault", &PictureFacts::fault)
      .def_ro("at", &PictureFacts::at)
      .def_ro("expected", &PictureFacts::expected)
      .def_ro("found", &PictureFacts::found);
  module.def(
      "look",
      [](nb::handle data, bool structure) {
        Buffer view(data);
        nb::gil_scoped_release unlocked;
        return look_at_picture(view.bytes(), structure);
      },
      nb::arg("data"), nb::arg("structure"),
      "The facts of an encoded picture; with `structure`, whether it is whole to its end.");
  module.def(
      "png_chunks",
      [](nb::handle data) {
        Buffer view(data);
        nb::list out;
        for (const PngChunk& chunk : png_chunks(view.bytes()))
          out.append(nb::make_tuple(name_of(chunk.name), chunk.begin, chunk.end));
        return out;
      },
      nb::arg("data"), nb::sig("def png_chunks(data: object) -> list[tuple[bytes, int, int]]"),
      "(name, where its content begins, where it ends) of each chunk of a PNG without fault.");
}

}  // namespace

void bind_pictures(nb::module_& module) {
  bind_facts(module);
  nb::enum_<PixelFault>(module, "PixelFault")
      .value("NONE", PixelFault::none)
      .value("CUT", PixelFault::cut)
      .value("FILTER", PixelFault::filter)
      .value("FORM", PixelFault::form);
  nb::class_<PixelForm>(module, "PixelForm", "How the image data of a PNG lies.")
      .def(
          "__init__",
          [](PixelForm* self, uint32_t width, uint32_t height, uint8_t bits, uint8_t channels,
             bool interlaced) { new (self) PixelForm{width, height, bits, channels, interlaced}; },
          nb::arg("width"), nb::arg("height"), nb::arg("bits"), nb::arg("channels"),
          nb::arg("interlaced"))
      .def_prop_ro(
          "inflated_bytes", [](const PixelForm& self) { return inflated_bytes(self); },
          "How many bytes its image data has; 0 where there is no such form.");
  module.def(
      "count_pixels",
      [](nb::handle inflated, const PixelForm& form) {
        Buffer view(inflated);
        const size_t count = form.bits == 16 ? 65536 : 256;
        auto counts = std::make_unique<int64_t[]>(count);
        PixelFault fault;
        {
          nb::gil_scoped_release unlocked;
          fault = count_pixels(view.bytes(), form, {counts.get(), count});
        }
        int64_t* const data = counts.get();
        nb::capsule owner(counts.release(),
                          [](void* p) noexcept { delete[] static_cast<int64_t*>(p); });
        return nb::make_tuple(fault, array_over(data, count, owner));
      },
      nb::arg("inflated"), nb::arg("form"),
      nb::sig("def count_pixels(inflated: object, form: PixelForm) -> tuple[PixelFault, object]"),
      "(fault, how often each value occurs) of the inflated image data of one channel.");
  module.def(
      "find_pixel",
      [](nb::handle inflated, const PixelForm& form, nb::handle allowed) -> nb::object {
        Buffer view(inflated), flags(allowed);
        FoundPixel pixel;
        {
          nb::gil_scoped_release unlocked;
          pixel = find_pixel(view.bytes(), form, flags.bytes());
        }
        if (!pixel.found) return nb::none();
        return nb::make_tuple(pixel.row, pixel.column, pixel.value);
      },
      nb::arg("inflated"), nb::arg("form"), nb::arg("allowed"),
      nb::sig("def find_pixel(inflated: object, form: PixelForm, allowed: object) -> tuple[int, "
              "int, int] | None"),
      "(row, column, value) of the first pixel whose value has no nonzero byte in `allowed`.");
  module.def(
      "copy_pixels",
      [](nb::handle inflated, const PixelForm& form) -> nb::object {
        Buffer view(inflated);
        const uint64_t needed = inflated_bytes(form);
        if (needed == 0) return nb::cast(PixelFault::form);
        if (view.bytes().size() < needed) return nb::cast(PixelFault::cut);
        // At most eight times the bytes that are there: a bit each.
        const size_t count =
            size_t{form.width} * form.height * form.channels * (form.bits == 16 ? 2 : 1);
        nb::object out =
            nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(count)));
        if (!out.is_valid()) throw nb::python_error();
        auto* const to = reinterpret_cast<std::byte*>(PyBytes_AS_STRING(out.ptr()));
        PixelFault fault;
        {
          nb::gil_scoped_release unlocked;
          fault = copy_pixels(view.bytes(), form, {to, count});
        }
        if (fault != PixelFault::none) return nb::cast(fault);
        return out;
      },
      nb::arg("inflated"), nb::arg("form"),
      nb::sig("def copy_pixels(inflated: object, form: PixelForm) -> bytes | PixelFault"),
      "All samples row by row, a byte each; of 16 bits two, the higher one first.");
}

}  // namespace rekord

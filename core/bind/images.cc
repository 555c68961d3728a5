// Encoded images and the pixels of masks, for Python.
#include <nanobind/ndarray.h>
#include <nanobind/stl/tuple.h>

#include <memory>
#include <tuple>

#include "bind/arrays.h"
#include "bind/bind.h"
#include "bind/buffer.h"
#include "image.h"
#include "mask.h"
#include "resample.h"

namespace nb = nanobind;

namespace rekord {
namespace {

nb::object name_of(uint32_t name) {
  const char letters[] = {static_cast<char>(name >> 24), static_cast<char>(name >> 16),
                          static_cast<char>(name >> 8), static_cast<char>(name)};
  return nb::bytes(letters, 4);
}

void bind_facts(nb::module_& module) {
  nb::enum_<ImageFormat>(module, "ImageFormat")
      .value("NONE", ImageFormat::none)
      .value("JPEG", ImageFormat::jpeg)
      .value("PNG", ImageFormat::png)
      .value("GIF", ImageFormat::gif)
      .value("BMP", ImageFormat::bmp)
      .value("WEBP", ImageFormat::webp)
      .value("TIFF", ImageFormat::tiff);
  nb::enum_<Colour>(module, "Colour")
      .value("UNKNOWN", Colour::unknown)
      .value("GREY", Colour::grey)
      .value("GREY_ALPHA", Colour::grey_alpha)
      .value("RGB", Colour::rgb)
      .value("RGBA", Colour::rgba)
      .value("PALETTE", Colour::palette)
      .value("CMYK", Colour::cmyk)
      .value("YCCK", Colour::ycck);
  nb::enum_<ImageFault>(module, "ImageFault")
      .value("NONE", ImageFault::none)
      .value("EMPTY", ImageFault::empty)
      .value("NOT_AN_IMAGE", ImageFault::not_an_image)
      .value("CUT", ImageFault::cut)
      .value("CRC", ImageFault::crc)
      .value("BAD_MARKER", ImageFault::bad_marker)
      .value("BAD_CHUNK", ImageFault::bad_chunk)
      .value("ZERO_SIZE", ImageFault::zero_size)
      .value("IMPOSSIBLE_SIZE", ImageFault::impossible_size);
  nb::class_<ImageFacts>(module, "ImageFacts", "What an encoded image says of itself.")
      .def_ro("format", &ImageFacts::format)
      .def_ro("colour", &ImageFacts::colour)
      .def_ro("width", &ImageFacts::width)
      .def_ro("height", &ImageFacts::height)
      .def_ro("channels", &ImageFacts::channels)
      .def_ro("bits", &ImageFacts::bits)
      .def_ro("orientation", &ImageFacts::orientation, "EXIF's, 1 to 8; 0 where it does not say.")
      .def_ro("interlaced", &ImageFacts::interlaced)
      .def_ro("end", &ImageFacts::end,
              "Where the image ends; 0 where it was not walked to its end.")
      .def_ro("fault", &ImageFacts::fault)
      .def_ro("at", &ImageFacts::at)
      .def_ro("expected", &ImageFacts::expected)
      .def_ro("found", &ImageFacts::found);
  module.def(
      "inspect_image",
      [](nb::handle data, bool structure) {
        Buffer view(data);
        nb::gil_scoped_release unlocked;
        return inspect_image(view.bytes(), structure);
      },
      nb::arg("data"), nb::arg("structure"),
      "The facts of an encoded image; with `structure`, whether it is whole to its end.");
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

using Pixels = nb::ndarray<uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using ReadOnlyPixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;

void bind_resample(nb::module_& module) {
  module.def(
      "resample",
      [](const ReadOnlyPixels& pixels, std::tuple<double, double, double, double> box,
         const Pixels& out) {
        const PixelGrid source{pixels.shape(1), pixels.shape(0), pixels.shape(2)};
        const PixelGrid result{out.shape(1), out.shape(0), out.shape(2)};
        const auto [left, top, right, bottom] = box;
        const PixelBox part{left, top, right, bottom};
        if (!can_resample(source, part, result))
          throw nb::value_error("sizes, channels or box do not fit");
        nb::gil_scoped_release unlocked;
        resample(pixels.data(), source, part, out.data(), result);
      },
      nb::arg("pixels"), nb::arg("box"), nb::arg("out"),
      nb::sig("def resample(pixels: object, box: tuple[float, float, float, float], out: object) "
              "-> None"),
      "Resizes the part (left, top, right, bottom) of uint8 pixels (height, width, channels) to "
      "the size of `out`, bilinear and antialiased.");
}

}  // namespace

void bind_images(nb::module_& module) {
  bind_facts(module);
  bind_resample(module);
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

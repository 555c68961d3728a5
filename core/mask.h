// The pixels of a PNG, from its inflated image data: unfiltered, counted, looked up, copied.
//
// Inflated image data are rows, from the top. Each starts with its filter, which determines how its
// bytes were computed from the row above and the pixel to the left:
//
//     | filter | row … | filter | row … | …
//
//     0  none     1  minus left     2  minus above     3  minus their mean     4  minus one of
//     three
//
// An interlaced PNG has seven such images in a row, each of every n-th pixel (Adam7).
//
// Masks are flat: long runs of one class, and rows like the row above. After any of these
// filters such areas are runs of zeros, and eight zeros are eight pixels copied or filled in.
#pragma once

#include <vector>

#include "bytes.h"

namespace rekord {

struct PixelForm {
  uint32_t width;
  uint32_t height;
  uint8_t bits;      // of a sample: 1, 2, 4, 8 or 16
  uint8_t channels;  // with fewer than 8 bits: 1
  bool interlaced;
};

enum class PixelFault : uint8_t {
  none = 0,
  cut,     // fewer bytes than the pixels need
  filter,  // a row has a filter that does not exist
  form,    // no such depth, or no pixels at all
};

// Size in bytes of the inflated image data of `form`; 0 if the form is invalid, or has more
// than 2^62.
uint64_t inflated_bytes(const PixelForm& form) noexcept;

// How often each value occurs: `counts` has 2^bits places, at least 256. One channel.
PixelFault count_pixels(Bytes inflated, const PixelForm& form, std::span<int64_t> counts);

struct FoundPixel {
  bool found = false;
  uint32_t row = 0;
  uint32_t column = 0;
  uint32_t value = 0;
};

// The first pixel, row by row, whose value has no nonzero byte in `allowed`. One channel, no fault.
FoundPixel find_pixel(Bytes inflated, const PixelForm& form, Bytes allowed);

// All samples, row by row, one byte each, or two (the higher one first) if `form` has 16 bits.
// `out` has room for them.
PixelFault copy_pixels(Bytes inflated, const PixelForm& form, std::span<std::byte> out);

}  // namespace rekord

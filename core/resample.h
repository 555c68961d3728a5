// Pixels of 8 bits resized with an antialiased bilinear filter.
//
// Each pixel of the result is a weighted mean of the pixels of the source around its centre. The
// weights fall linearly to zero at a distance of one pixel of the larger of both grids, so that
// nothing is left out when an image shrinks:
//
//     source    |  |  |  |  |  |  |  |  |
//     weights        _ - ^ - _
//     result    |     |     |     |     |
//
// Rows are blended first, columns second. Weights are integers that sum to 2^14, and 7 bits of the
// fraction are kept in between: a flat area keeps its value, and every implementation gives the
// same result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace rekord {

struct PixelGrid {
  size_t width;
  size_t height;
  size_t channels;  // 1 to 4

  size_t row_bytes() const noexcept { return width * channels; }
};

// The part of a source that is resized, in pixels; its edges may lie inside of pixels.
struct PixelBox {
  double left, top, right, bottom;
};

struct ResampleImplementation {
  const char* name;
  // out[i] = the weighted sum of the rows' bytes at i, times 2^7. `taps` is even.
  void (*blend_rows)(const uint8_t* const* rows, const int16_t* weights, size_t taps,
                     size_t row_bytes, int16_t* out) noexcept;
  // out[i] = the weighted sum of the pixels that start at pixel first[i] of `row`, rounded. Both
  // `row` and `out` have room for 4 items more than their pixels need.
  void (*blend_columns)(const int16_t* row, const uint32_t* first, const int16_t* weights,
                        size_t taps, size_t pixels, size_t channels, uint8_t* out) noexcept;
};

// The portable implementation first, the best last.
std::span<const ResampleImplementation> resample_implementations() noexcept;

// Whether sizes and box fit each other: nothing empty, and the box inside of the source.
bool can_resample(const PixelGrid& source, const PixelBox& box, const PixelGrid& result) noexcept;

// `in` and `out` have all pixels of their grids, which `can_resample`. Allocates as many bytes as a
// few rows and columns of both have.
void resample(const uint8_t* in, const PixelGrid& source, const PixelBox& box, uint8_t* out,
              const PixelGrid& result,
              const ResampleImplementation& implementation = resample_implementations().back());

}  // namespace rekord

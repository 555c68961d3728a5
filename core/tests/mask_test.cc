#include "mask.h"

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;

// Numbers that look like a mask: runs, rows like the one above, now and then something else.
class Some {
 public:
  explicit Some(uint32_t seed) : state_(seed) {}
  uint32_t below(uint32_t bound) {
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) % bound;
  }

 private:
  uint32_t state_;
};

Buffer mask_like(Some& some, size_t rows, size_t row_bytes) {
  Buffer pixels(rows * row_bytes);
  for (size_t row = 0; row < rows; ++row) {
    uint8_t value = static_cast<uint8_t>(some.below(256));
    for (size_t i = 0; i < row_bytes; ++i) {
      if (some.below(20) == 0)
        value = static_cast<uint8_t>(some.below(5) == 0 ? some.below(256) : some.below(3));
      const bool copy = row > 0 && (row + i / 16) % 3 != 0;
      pixels[row * row_bytes + i] = copy ? pixels[(row - 1) * row_bytes + i] : std::byte{value};
    }
  }
  return pixels;
}

// The filters as PNG's specification has them, one byte at a time.
uint8_t filtered(const Buffer& pixels, size_t row, size_t i, size_t row_bytes, size_t pixel,
                 uint8_t filter) {
  const auto at = [&](size_t r, size_t c) {
    return std::to_integer<int>(pixels[r * row_bytes + c]);
  };
  const int left = i >= pixel ? at(row, i - pixel) : 0;
  const int above = row > 0 ? at(row - 1, i) : 0;
  const int corner = row > 0 && i >= pixel ? at(row - 1, i - pixel) : 0;
  int guess = 0;
  if (filter == 1) guess = left;
  if (filter == 2) guess = above;
  if (filter == 3) guess = (left + above) / 2;
  if (filter == 4) {
    const int p = left + above - corner;
    const int a = std::abs(p - left), b = std::abs(p - above), c = std::abs(p - corner);
    guess = a <= b && a <= c ? left : b <= c ? above : corner;
  }
  return static_cast<uint8_t>(at(row, i) - guess);
}

Buffer with_filters(const Buffer& pixels, size_t rows, size_t row_bytes, size_t pixel,
                    uint8_t first) {
  Buffer out;
  for (size_t row = 0; row < rows; ++row) {
    const auto filter = static_cast<uint8_t>((first + row) % 5);
    out.push_back(std::byte{filter});
    for (size_t i = 0; i < row_bytes; ++i)
      out.push_back(std::byte{filtered(pixels, row, i, row_bytes, pixel, filter)});
  }
  return out;
}

TEST("all five filters are undone, for pixels of every width") {
  Some some(1);
  for (const auto& [channels, bits] :
       {std::pair{1, 8}, {2, 8}, {3, 8}, {4, 8}, {1, 16}, {3, 16}, {4, 16}})
    for (const uint32_t width : {1u, 2u, 7u, 8u, 9u, 64u, 131u})
      for (uint8_t first = 0; first < 5; ++first) {
        const PixelForm form{width, 11, static_cast<uint8_t>(bits), static_cast<uint8_t>(channels),
                             false};
        const size_t pixel = static_cast<size_t>(channels * bits / 8), row_bytes = width * pixel;
        const Buffer pixels = mask_like(some, 11, row_bytes);
        const Buffer inflated = with_filters(pixels, 11, row_bytes, pixel, first);
        REQUIRE(inflated_bytes(form) == inflated.size());
        Buffer out(pixels.size());
        CHECK_EQ(copy_pixels(inflated, form, out), PixelFault::none);
        CHECK(out == pixels);
      }
}

TEST("values are counted, and the first that is not allowed is found") {
  Some some(2);
  for (const uint32_t width : {1u, 8u, 17u, 200u}) {
    const PixelForm form{width, 9, 8, 1, false};
    const Buffer pixels = mask_like(some, 9, width);
    const Buffer inflated = with_filters(pixels, 9, width, 1, 3);
    std::vector<int64_t> counts(256), expected(256);
    for (const std::byte value : pixels) ++expected[std::to_integer<size_t>(value)];
    CHECK_EQ(count_pixels(inflated, form, counts), PixelFault::none);
    CHECK(counts == expected);
    for (size_t at = 0; at < pixels.size(); ++at) {
      Buffer allowed(256, std::byte{1});
      allowed[std::to_integer<size_t>(pixels[at])] = std::byte{0};
      size_t first = 0;
      while (pixels[first] != pixels[at]) ++first;
      const FoundPixel found = find_pixel(inflated, form, allowed);
      CHECK(found.found);
      CHECK_EQ(found.row, first / width);
      CHECK_EQ(found.column, first % width);
      CHECK_EQ(found.value, std::to_integer<uint32_t>(pixels[at]));
    }
    CHECK(!find_pixel(inflated, form, Buffer(256, std::byte{1})).found);
    CHECK(find_pixel(inflated, form, {}).found);
  }
}

TEST("values of 1, 2, 4 and 16 bits are counted as what they are") {
  struct Row {
    const char* inflated;
    uint8_t bits;
    uint32_t width;
    std::vector<uint32_t> values;
  };
  const Row rows[] = {
      {"00 a0 00 40", 1, 3, {1, 0, 1, 0, 1, 0}},
      {"00 1b c0 00 e4 40", 2, 5, {0, 1, 2, 3, 3, 3, 2, 1, 0, 1}},
      {"00 1f a0 02 10 50", 4, 3, {1, 15, 10, 2, 15, 15}},
      {"00 01 00 ff ff 01 00 02 00 01", 16, 2, {256, 65535, 2, 3}},
  };
  for (const Row& row : rows) {
    const PixelForm form{row.width, 2, row.bits, 1, false};
    const Buffer inflated = hex(row.inflated);
    std::vector<int64_t> counts(65536), expected(65536);
    for (const uint32_t value : row.values) ++expected[value];
    CHECK_EQ(count_pixels(inflated, form, counts), PixelFault::none);
    CHECK(counts == expected);
    const size_t bytes = row.bits == 16 ? 2 : 1;
    Buffer out(row.values.size() * bytes);
    CHECK_EQ(copy_pixels(inflated, form, out), PixelFault::none);
    for (size_t i = 0; i < row.values.size(); ++i) {
      uint32_t value = 0;
      for (size_t k = 0; k < bytes; ++k)
        value = value << 8 | std::to_integer<uint32_t>(out[i * bytes + k]);
      CHECK_EQ(value, row.values[i]);
    }
  }
}

TEST("an interlaced image is put together from its seven passes") {
  constexpr uint32_t kStarts[7][4] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                                      {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};
  for (const auto& [width, height] : {std::pair{1u, 1u}, {3u, 2u}, {8u, 8u}, {9u, 17u}, {2u, 5u}}) {
    // Each pixel has its own number, so that a place is known by what stands there.
    Buffer inflated;
    for (const auto& [x0, y0, dx, dy] : kStarts)
      for (uint32_t y = y0; y < height; y += dy) {
        if (x0 >= width) break;
        inflated.push_back(std::byte{0});
        for (uint32_t x = x0; x < width; x += dx) inflated.push_back(std::byte(y * width + x));
      }
    const PixelForm form{width, height, 8, 1, true};
    REQUIRE(inflated_bytes(form) == inflated.size());
    Buffer out(size_t{width} * height);
    CHECK_EQ(copy_pixels(inflated, form, out), PixelFault::none);
    for (size_t i = 0; i < out.size(); ++i) CHECK_EQ(std::to_integer<size_t>(out[i]), i);
    for (size_t first = 0; first < out.size(); ++first) {
      Buffer allowed(256, std::byte{0});
      for (size_t i = 0; i < first; ++i) allowed[i] = std::byte{1};
      const FoundPixel found = find_pixel(inflated, form, allowed);
      CHECK_EQ(size_t{found.row} * width + found.column, first);
    }
  }
}

TEST("image data that is too short, or has another filter, or no form, is refused") {
  const PixelForm form{4, 3, 8, 1, false};
  std::vector<int64_t> counts(256);
  for (size_t bytes = 0; bytes < 15; ++bytes)
    CHECK_EQ(count_pixels(Buffer(bytes), form, counts), PixelFault::cut);
  CHECK_EQ(count_pixels(Buffer(15), form, counts), PixelFault::none);
  Buffer odd(15);
  odd[10] = std::byte{5};
  CHECK_EQ(count_pixels(odd, form, counts), PixelFault::filter);
  Buffer out(12);
  CHECK_EQ(copy_pixels(odd, form, out), PixelFault::filter);
  CHECK_EQ(copy_pixels(Buffer(15), form, std::span(out).first(11)), PixelFault::cut);
  for (const PixelForm& none : {PixelForm{4, 3, 3, 1, false}, PixelForm{4, 3, 4, 3, false},
                                PixelForm{0, 3, 8, 1, false}, PixelForm{4, 0, 8, 1, true},
                                PixelForm{~0u, ~0u, 16, 4, false}, PixelForm{4, 3, 8, 5, false}}) {
    CHECK_EQ(inflated_bytes(none), 0u);
    CHECK_EQ(copy_pixels(Buffer(15), none, out), PixelFault::form);
  }
  CHECK_EQ(count_pixels(Buffer(45), {4, 3, 8, 3, false}, counts), PixelFault::form);
}

}  // namespace
}  // namespace rekord

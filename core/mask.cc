#include "mask.h"

#include <algorithm>
#include <cstdlib>

namespace rekord {
namespace {

using Octets = const uint8_t*;

// One image of those that make up a PNG: all of it, or every n-th pixel.
struct Pass {
  uint32_t x, y, step_x, step_y;

  uint32_t columns(const PixelForm& form) const noexcept {
    return form.width > x ? (form.width - x - 1) / step_x + 1 : 0;
  }
  uint32_t rows(const PixelForm& form) const noexcept {
    return form.height > y ? (form.height - y - 1) / step_y + 1 : 0;
  }
};

constexpr Pass kWhole[] = {{0, 0, 1, 1}};
constexpr Pass kAdam7[] = {{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4},
                           {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}};

std::span<const Pass> passes(const PixelForm& form) noexcept {
  return form.interlaced ? std::span<const Pass>(kAdam7) : std::span<const Pass>(kWhole);
}

uint64_t row_bytes(const PixelForm& form, uint32_t columns) noexcept {
  return (uint64_t{columns} * form.channels * form.bits + 7) / 8;
}

// ---- Filters -------------------------------------------------------------------------------

void undo_left(Octets in, uint8_t* out, size_t count, size_t pixel) noexcept {
  if (pixel > 1) {
    for (size_t i = 0; i < count; ++i)
      out[i] = static_cast<uint8_t>(in[i] + (i >= pixel ? out[i - pixel] : 0));
    return;
  }
  uint8_t left = 0;
  size_t i = 0;
  while (i < count) {
    for (uint64_t word; i + 8 <= count; i += 8) {
      std::memcpy(&word, in + i, 8);
      if (word != 0) break;
      std::memset(out + i, left, 8);
    }
    const size_t stop = std::min(i + 8, count);
    for (; i < stop; ++i) out[i] = left = static_cast<uint8_t>(in[i] + left);
  }
}

void undo_above(Octets in, Octets above, uint8_t* out, size_t count) noexcept {
  for (size_t i = 0; i < count; ++i) out[i] = static_cast<uint8_t>(in[i] + above[i]);
}

void undo_mean(Octets in, Octets above, uint8_t* out, size_t count, size_t pixel) noexcept {
  for (size_t i = 0; i < count; ++i) {
    const unsigned left = i >= pixel ? out[i - pixel] : 0u;
    out[i] = static_cast<uint8_t>(in[i] + (left + above[i]) / 2);
  }
}

// Whichever of the three is nearest to left + above - corner, in this order.
inline uint8_t nearest(int left, int above, int corner) noexcept {
  const int to_left = std::abs(above - corner), to_above = std::abs(left - corner);
  const int to_corner = std::abs(left + above - 2 * corner);
  const int other = to_above <= to_corner ? above : corner;
  return static_cast<uint8_t>(to_left <= to_above && to_left <= to_corner ? left : other);
}

void undo_nearest(Octets in, Octets above, uint8_t* out, size_t count, size_t pixel) noexcept {
  if (pixel > 1) {
    for (size_t i = 0; i < count; ++i) {
      const bool inside = i >= pixel;
      const uint8_t guess =
          nearest(inside ? out[i - pixel] : 0, above[i], inside ? above[i - pixel] : 0);
      out[i] = static_cast<uint8_t>(in[i] + guess);
    }
    return;
  }
  uint8_t left = 0, corner = 0;
  size_t i = 0;
  while (i < count) {
    if (left == corner) {
      // Then the guess is what lies above, and after a zero the same holds for the next pixel.
      for (uint64_t word; i + 8 <= count; i += 8) {
        std::memcpy(&word, in + i, 8);
        if (word != 0) break;
        std::memcpy(out + i, above + i, 8);
      }
      if (i > 0) left = out[i - 1], corner = above[i - 1];
    }
    const size_t stop = std::min(i + 8, count);
    for (; i < stop; ++i) {
      out[i] = left = static_cast<uint8_t>(in[i] + nearest(left, above[i], corner));
      corner = above[i];
    }
  }
}

// ---- Rows ------------------------------------------------------------------------------------

// Calls visit(row, pass, number of the row in its pass, columns) for every unfiltered row.
// `inflated` was seen to have all of them.
template <class Visit>
PixelFault for_each_row(Bytes inflated, const PixelForm& form, Visit visit) {
  if (inflated_bytes(form) == 0) return PixelFault::form;
  if (inflated.size() < inflated_bytes(form)) return PixelFault::cut;
  const size_t widest = row_bytes(form, form.width);
  const size_t pixel = std::max<size_t>(1, size_t{form.channels} * form.bits / 8);
  std::vector<uint8_t> scratch(3 * widest);  // two rows by turns, and one of zeros
  uint8_t* const turns[] = {scratch.data(), scratch.data() + widest};
  const uint8_t* const zeros = scratch.data() + 2 * widest;
  Octets in = reinterpret_cast<Octets>(inflated.data());
  size_t turn = 0;
  for (const Pass& pass : passes(form)) {
    const uint32_t columns = pass.columns(form), rows = pass.rows(form);
    if (columns == 0 || rows == 0) continue;
    const size_t count = row_bytes(form, columns);
    Octets above = zeros;
    for (uint32_t row = 0; row < rows; ++row) {
      const uint8_t filter = *in++;
      uint8_t* const out = turns[turn];
      switch (filter) {
        case 0:
          break;
        case 1:
          undo_left(in, out, count, pixel);
          break;
        case 2:
          undo_above(in, above, out, count);
          break;
        case 3:
          undo_mean(in, above, out, count, pixel);
          break;
        case 4:
          undo_nearest(in, above, out, count, pixel);
          break;
        default:
          return PixelFault::filter;
      }
      above = filter == 0 ? in : out;
      if (filter != 0) turn ^= 1;
      in += count;
      visit(above, pass, row, columns);
    }
  }
  return PixelFault::none;
}

// The sample `i` of a row.
inline uint32_t sample(Octets row, size_t i, uint8_t bits) noexcept {
  if (bits == 8) return row[i];
  if (bits == 16) return uint32_t{row[2 * i]} << 8 | row[2 * i + 1];
  const size_t bit = i * bits;
  return row[bit / 8] >> (8 - bits - bit % 8) & ((1u << bits) - 1);
}

void count_octets(Octets row, size_t count, std::span<int64_t> counts) noexcept {
  size_t i = 0;
  while (i + 8 <= count) {
    uint64_t word;
    std::memcpy(&word, row + i, 8);
    if (word == uint64_t{row[i]} * 0x0101010101010101u) {
      // A run of one class: as far as it goes.
      const size_t begin = i;
      for (uint64_t next = word; i + 8 <= count; i += 8) {
        std::memcpy(&next, row + i, 8);
        if (next != word) break;
      }
      counts[row[begin]] += static_cast<int64_t>(i - begin);
    } else {
      for (const size_t stop = i + 8; i < stop; ++i) ++counts[row[i]];
    }
  }
  for (; i < count; ++i) ++counts[row[i]];
}

}  // namespace

uint64_t inflated_bytes(const PixelForm& form) noexcept {
  const uint8_t bits = form.bits;
  const bool whole = bits == 8 || bits == 16;
  if (!whole && bits != 1 && bits != 2 && bits != 4) return 0;
  if (form.channels < 1 || form.channels > 4 || (!whole && form.channels > 1)) return 0;
  uint64_t total = 0;
  for (const Pass& pass : passes(form)) {
    const uint32_t columns = pass.columns(form), rows = pass.rows(form);
    if (columns == 0 || rows == 0) continue;
    const uint64_t one = row_bytes(form, columns) + 1;
    if (one > ((uint64_t{1} << 62) - total) / rows) return 0;
    total += one * rows;
  }
  return total;
}

PixelFault count_pixels(Bytes inflated, const PixelForm& form, std::span<int64_t> counts) {
  if (form.channels != 1 || counts.size() < (form.bits == 16 ? 65536u : 256u))
    return PixelFault::form;
  return for_each_row(inflated, form, [&](Octets row, const Pass&, uint32_t, uint32_t columns) {
    if (form.bits == 8) {
      count_octets(row, columns, counts);
    } else {
      for (uint32_t i = 0; i < columns; ++i) ++counts[sample(row, i, form.bits)];
    }
  });
}

FoundPixel find_pixel(Bytes inflated, const PixelForm& form, Bytes allowed) {
  FoundPixel first;
  if (form.channels != 1) return first;
  for_each_row(inflated, form,
               [&](Octets row, const Pass& pass, uint32_t number, uint32_t columns) {
                 const uint32_t y = pass.y + number * pass.step_y;
                 if (first.found && first.row < y) return;
                 for (uint32_t i = 0; i < columns; ++i) {
                   const uint32_t value = sample(row, i, form.bits);
                   if (value < allowed.size() && allowed[value] != std::byte{0}) continue;
                   const uint32_t x = pass.x + i * pass.step_x;
                   if (!first.found || y < first.row || x < first.column)
                     first = {true, y, x, value};
                   return;
                 }
               });
  return first;
}

PixelFault copy_pixels(Bytes inflated, const PixelForm& form, std::span<std::byte> out) {
  const size_t pixel = size_t{form.channels} * (form.bits == 16 ? 2 : 1);
  // Comes first: what follows multiplies numbers that it has seen to be small enough.
  if (inflated_bytes(form) == 0) return PixelFault::form;
  if (inflated.size() < inflated_bytes(form)) return PixelFault::cut;
  if (out.size() < pixel * form.width * form.height) return PixelFault::cut;
  return for_each_row(
      inflated, form, [&](Octets row, const Pass& pass, uint32_t number, uint32_t columns) {
        const size_t y = pass.y + size_t{number} * pass.step_y;
        std::byte* const to = out.data() + y * form.width * pixel;
        if (form.bits >= 8 && !form.interlaced) {
          std::memcpy(to, row, columns * pixel);
        } else if (form.bits >= 8) {
          for (size_t i = 0; i < columns; ++i)
            std::memcpy(to + (pass.x + i * pass.step_x) * pixel, row + i * pixel, pixel);
        } else {
          for (size_t i = 0; i < columns; ++i)
            to[pass.x + i * pass.step_x] = static_cast<std::byte>(sample(row, i, form.bits));
        }
      });
}

}  // namespace rekord

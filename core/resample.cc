#include "resample.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

namespace rekord {
namespace {

constexpr int kWeightBits = 14;
constexpr int kFractionBits = 7;  // 255 << 7 is the most that fits into 16 bits with a sign
constexpr int kRowShift = kWeightBits - kFractionBits;
constexpr int kColumnShift = kWeightBits + kFractionBits;
constexpr int32_t kRowHalf = 1 << (kRowShift - 1);
constexpr int32_t kColumnHalf = 1 << (kColumnShift - 1);
constexpr size_t kSpare = 4;  // items that may be read or written after the last pixel

// ---- Weights -------------------------------------------------------------------------------

// For each place of one axis of the result, the first of `taps` places of the source, and their
// weights. Those after the last place of the source have weight 0.
struct Weights {
  size_t taps;  // even: implementations take them in pairs
  std::vector<uint32_t> first;
  std::vector<int16_t> values;
};

Weights make_weights(size_t source, double begin, double end, size_t result) {
  const double scale = (end - begin) / static_cast<double>(result);
  const double reach = std::max(scale, 1.0);
  const double last = static_cast<double>(source);
  const size_t most = std::min(source, static_cast<size_t>(std::ceil(2 * reach)));
  Weights out{(most + 1) / 2 * 2, std::vector<uint32_t>(result), {}};
  out.values.resize(result * out.taps);
  std::vector<double> sums(out.taps);
  for (size_t i = 0; i < result; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto from = static_cast<size_t>(std::clamp(centre - reach + 0.5, 0.0, last - 1));
    const auto to = static_cast<size_t>(std::clamp(centre + reach + 0.5, 1.0, last));
    // A place more than there are taps, which rounding of `centre` can give, has a weight of 0.
    const size_t count = std::min(to - from, out.taps);
    double sum = 0;
    for (size_t tap = 0; tap < count; ++tap) {
      const double distance = std::abs(static_cast<double>(from + tap) + 0.5 - centre);
      sums[tap] = sum += std::max(0.0, reach - distance);
    }
    int32_t before = 0;  // sums are rounded, not weights, so that these add up
    const double factor = (1 << kWeightBits) / sum;
    for (size_t tap = 0; tap < count; ++tap) {
      const auto now = static_cast<int32_t>(sums[tap] * factor + 0.5);
      out.values[i * out.taps + tap] = static_cast<int16_t>(now - before);
      before = now;
    }
    out.first[i] = static_cast<uint32_t>(from);
  }
  return out;
}

// ---- Implementations -----------------------------------------------------------------------

void blend_rows_portable(const uint8_t* const* rows, const int16_t* weights, size_t taps,
                         size_t row_bytes, int16_t* out) noexcept {
  constexpr size_t kBlock = 64;  // sums that stay in registers, or close to them
  for (size_t begin = 0; begin < row_bytes; begin += kBlock) {
    const size_t count = std::min(kBlock, row_bytes - begin);
    int32_t sums[kBlock];
    std::fill_n(sums, kBlock, kRowHalf);
    for (size_t tap = 0; tap < taps; ++tap)
      for (size_t i = 0; i < count; ++i) sums[i] += weights[tap] * rows[tap][begin + i];
    for (size_t i = 0; i < count; ++i) out[begin + i] = static_cast<int16_t>(sums[i] >> kRowShift);
  }
}

void blend_columns_portable(const int16_t* row, const uint32_t* first, const int16_t* weights,
                            size_t taps, size_t pixels, size_t channels, uint8_t* out) noexcept {
  for (size_t i = 0; i < pixels; ++i, weights += taps) {
    const int16_t* const from = row + first[i] * channels;
    for (size_t channel = 0; channel < channels; ++channel) {
      int32_t sum = kColumnHalf;
      for (size_t tap = 0; tap < taps; ++tap) sum += weights[tap] * from[tap * channels + channel];
      *out++ = static_cast<uint8_t>(sum >> kColumnShift);
    }
  }
}

#if defined(__SSE2__)

// Two weights, for each pair of 16-bit lanes.
__m128i pair(const int16_t* weights) noexcept {
  int32_t both;
  std::memcpy(&both, weights, sizeof both);
  return _mm_set1_epi32(both);
}

// With the number of taps known to the compiler, or 0 for any: the loops over the few taps of a
// usual image would cost as much as what they repeat.
template <size_t kTaps>
void blend_rows_sse2(const uint8_t* const* rows, const int16_t* weights, size_t any_taps,
                     size_t row_bytes, int16_t* out) noexcept {
  const size_t taps = kTaps == 0 ? any_taps : kTaps;
  const __m128i zero = _mm_setzero_si128(), half = _mm_set1_epi32(kRowHalf);
  size_t i = 0;
  for (; i + 16 <= row_bytes; i += 16) {
    __m128i sums[4] = {half, half, half, half};
    for (size_t tap = 0; tap < taps; tap += 2) {
      const auto load = [&](size_t row) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + i));
      };
      const __m128i a = load(tap), b = load(tap + 1), both = pair(weights + tap);
      const __m128i low = _mm_unpacklo_epi8(a, b), high = _mm_unpackhi_epi8(a, b);
      const auto add = [&](__m128i& sum, __m128i words) {
        sum = _mm_add_epi32(sum, _mm_madd_epi16(words, both));
      };
      add(sums[0], _mm_unpacklo_epi8(low, zero));
      add(sums[1], _mm_unpackhi_epi8(low, zero));
      add(sums[2], _mm_unpacklo_epi8(high, zero));
      add(sums[3], _mm_unpackhi_epi8(high, zero));
    }
    for (size_t part = 0; part < 2; ++part) {
      const __m128i words = _mm_packs_epi32(_mm_srai_epi32(sums[2 * part], kRowShift),
                                            _mm_srai_epi32(sums[2 * part + 1], kRowShift));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + i + 8 * part), words);
    }
  }
  for (; i < row_bytes; ++i) {
    int32_t sum = kRowHalf;
    for (size_t tap = 0; tap < taps; ++tap) sum += weights[tap] * rows[tap][i];
    out[i] = static_cast<int16_t>(sum >> kRowShift);
  }
}

// All channels of a pixel at once, and up to three more items, whose sums are overwritten by those
// of the next pixel.
template <size_t kTaps>
void blend_columns_sse2(const int16_t* row, const uint32_t* first, const int16_t* weights,
                        size_t any_taps, size_t pixels, size_t channels, uint8_t* out) noexcept {
  const size_t taps = kTaps == 0 ? any_taps : kTaps;
  const __m128i half = _mm_set1_epi32(kColumnHalf);
  for (size_t i = 0; i < pixels; ++i, out += channels) {
    const int16_t* from = row + first[i] * channels;
    __m128i sums = half;
    for (size_t tap = 0; tap < taps; tap += 2, weights += 2, from += 2 * channels) {
      const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
      const __m128i b = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + channels));
      sums = _mm_add_epi32(sums, _mm_madd_epi16(_mm_unpacklo_epi16(a, b), pair(weights)));
    }
    const __m128i words = _mm_packs_epi32(_mm_srai_epi32(sums, kColumnShift), sums);
    const int32_t bytes = _mm_cvtsi128_si32(_mm_packus_epi16(words, words));
    std::memcpy(out, &bytes, sizeof bytes);
  }
}

void blend_rows_of_taps(const uint8_t* const* rows, const int16_t* weights, size_t taps,
                        size_t row_bytes, int16_t* out) noexcept {
  const auto blend = taps == 2   ? blend_rows_sse2<2>
                     : taps == 4 ? blend_rows_sse2<4>
                     : taps == 6 ? blend_rows_sse2<6>
                                 : blend_rows_sse2<0>;
  blend(rows, weights, taps, row_bytes, out);
}

void blend_columns_of_taps(const int16_t* row, const uint32_t* first, const int16_t* weights,
                           size_t taps, size_t pixels, size_t channels, uint8_t* out) noexcept {
  const auto blend = taps == 2   ? blend_columns_sse2<2>
                     : taps == 4 ? blend_columns_sse2<4>
                     : taps == 6 ? blend_columns_sse2<6>
                                 : blend_columns_sse2<0>;
  blend(row, first, weights, taps, pixels, channels, out);
}

#endif

constexpr ResampleImplementation kImplementations[] = {
    {"portable", blend_rows_portable, blend_columns_portable},
#if defined(__SSE2__)
    {"sse2", blend_rows_of_taps, blend_columns_of_taps},
#endif
};

}  // namespace

std::span<const ResampleImplementation> resample_implementations() noexcept {
  return kImplementations;
}

bool can_resample(const PixelGrid& source, const PixelBox& box, const PixelGrid& result) noexcept {
  constexpr size_t kMostPlaces = size_t{1} << 31;
  const auto is_valid = [](const PixelGrid& grid) {
    return grid.width > 0 && grid.height > 0 && grid.width <= kMostPlaces &&
           grid.height <= kMostPlaces && grid.channels >= 1 && grid.channels <= 4;
  };
  // Written so that a NaN fails.
  return is_valid(source) && is_valid(result) && source.channels == result.channels &&
         box.left >= 0 && box.left < box.right && box.right <= static_cast<double>(source.width) &&
         box.top >= 0 && box.top < box.bottom && box.bottom <= static_cast<double>(source.height);
}

void resample(const uint8_t* in, const PixelGrid& source, const PixelBox& box, uint8_t* out,
              const PixelGrid& result, const ResampleImplementation& implementation) {
  const size_t channels = source.channels;
  const Weights down = make_weights(source.height, box.top, box.bottom, result.height);
  Weights across = make_weights(source.width, box.left, box.right, result.width);
  // Only the columns that are used are blended.
  const size_t left = across.first.front();
  const size_t right = std::min<size_t>(source.width, across.first.back() + across.taps);
  for (uint32_t& first : across.first) first -= static_cast<uint32_t>(left);
  std::vector<int16_t> blended((across.first.back() + across.taps) * channels + kSpare);
  std::vector<uint8_t> made(result.row_bytes() + kSpare);
  std::vector<const uint8_t*> rows(down.taps);
  for (size_t i = 0; i < result.height; ++i) {
    for (size_t tap = 0; tap < down.taps; ++tap) {
      const size_t row = std::min<size_t>(down.first[i] + tap, source.height - 1);
      rows[tap] = in + row * source.row_bytes() + left * channels;
    }
    implementation.blend_rows(rows.data(), &down.values[i * down.taps], down.taps,
                              (right - left) * channels, blended.data());
    implementation.blend_columns(blended.data(), across.first.data(), across.values.data(),
                                 across.taps, result.width, channels, made.data());
    std::memcpy(out + i * result.row_bytes(), made.data(), result.row_bytes());
  }
}

}  // namespace rekord

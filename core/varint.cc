#include "varint.h"

#include <algorithm>
#include <array>

#include "portable.h"

#if defined(__GNUC__) && defined(__x86_64__)
#define REKORD_VARINT_X86 1
#include <immintrin.h>
#if !defined(__clang__)
// GCC's own header begins with a register that it leaves undefined on purpose.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#endif

namespace rekord {
namespace {

// Decodes the varints that end in the next eight bytes, or a longer one; false where there is none.
inline bool decode_word(const std::byte*& at, const std::byte* end, int64_t*& out) noexcept {
  const auto left = static_cast<size_t>(end - at);
  const uint64_t word = load_le<uint64_t>(at);
  uint64_t ends = ~word & kTopBits;
  if (left < 8) ends &= (uint64_t{1} << (8 * left)) - 1;
  if (ends == kTopBits) {
    for (int i = 0; i < 8; ++i) out[i] = static_cast<int64_t>(word >> (8 * i) & 0x7f);
    out += 8;
    at += 8;
    return true;
  }
  if (ends == 0x8000800080008000u) {
    for (int i = 0; i < 4; ++i) {
      const uint64_t pair = word >> (16 * i);
      out[i] = static_cast<int64_t>((pair & 0x7f) | (pair >> 1 & 0x3f80));
    }
    out += 4;
    at += 8;
    return true;
  }
  if (ends == 0) {
    // Nine or ten bytes, or damage.
    size_t length = 9;
    while (length <= 10 && length <= left && std::to_integer<uint8_t>(at[length - 1]) >= 0x80)
      ++length;
    if (length > left || !decode_varint(at, length, *out)) return false;
    ++out;
    at += length;
    return true;
  }
  int done = 0;  // bits
  do {
    const int last = std::countr_zero(ends) + 1;
    const uint64_t varint = word << (64 - last) >> (64 - last + done);
    *out++ = static_cast<int64_t>(join_groups(varint));
    done = last;
    ends &= ends - 1;
  } while (ends != 0);
  at += done / 8;
  return true;
}

size_t decode_portable(const std::byte* at, size_t bytes, int64_t* out) noexcept {
  const std::byte* const end = at + bytes;
  int64_t* const begin = out;
  while (at < end)
    if (!decode_word(at, end, out)) return kBadVarint;
  return static_cast<size_t>(out - begin);
}

#if defined(REKORD_VARINT_X86)

// Sixty-four bytes at a time, whatever the lengths: where lengths are mixed, a branch on
// each of them is wrong too often.
//
//     bytes    b9 0a | 07 | 81 80 01 | …      top bits say where varints end
//     starts   0       2    3          …      their positions, side by side
//     eight lanes of eight bytes from each start; what follows the end is masked off,
//     and the groups of seven bits are joined by multiplications: 7 → 14 → 28 → 56
#define REKORD_VARINT_WIDE __attribute__((target("avx512f,avx512bw,avx512vbmi,avx512vbmi2")))

struct alignas(64) Sixty4 {
  std::array<uint8_t, 64> bytes;
};

constexpr Sixty4 kPositions = [] {
  Sixty4 all{};
  for (size_t i = 0; i < 64; ++i) all.bytes[i] = static_cast<uint8_t>(i);
  return all;
}();

// In lane j eight times j: which start is the lane's.
constexpr Sixty4 kLanes = [] {
  Sixty4 all{};
  for (size_t i = 0; i < 64; ++i) all.bytes[i] = static_cast<uint8_t>(i / 8);
  return all;
}();

constexpr Sixty4 kInLane = [] {
  Sixty4 all{};
  for (size_t i = 0; i < 64; ++i) all.bytes[i] = static_cast<uint8_t>(i % 8);
  return all;
}();

REKORD_VARINT_WIDE size_t decode_wide(const std::byte* at, size_t bytes, int64_t* out) noexcept {
  const std::byte* const end = at + bytes;
  int64_t* const begin = out;
  const __m512i positions = _mm512_load_si512(&kPositions);
  const __m512i in_lane = _mm512_load_si512(&kInLane);
  const __m512i top_bits = _mm512_set1_epi8(static_cast<char>(0x80));
  const __m512i low_bits = _mm512_set1_epi8(0x7f);
  const __m512i pairs = _mm512_set1_epi16(static_cast<short>(0x8001));    // 1 and 2^7
  const __m512i quads = _mm512_set1_epi32(static_cast<int>(0x40000001));  // 1 and 2^14
  const __m512i lower_half = _mm512_set1_epi64(0x000000000fffffff);
  while (at < end) {
    const auto left = static_cast<size_t>(end - at);
    const uint64_t there = left < 64 ? (uint64_t{1} << left) - 1 : ~uint64_t{0};
    const __m512i block = _mm512_maskz_loadu_epi8(there, at);
    const uint64_t goes_on = _mm512_movepi8_mask(block);
    const uint64_t ends = ~goes_on & there;
    // Eight bytes in a row that go on make a varint longer than a lane.
    uint64_t row = goes_on & goes_on >> 1;
    row &= row >> 2;
    row &= row >> 4;
    if (row != 0 || ends == 0) [[unlikely]] {
      if (!decode_word(at, end, out)) return kBadVarint;
      continue;
    }
    const __m512i starts = _mm512_maskz_compress_epi8(ends << 1 | 1, positions);
    __m512i lanes = _mm512_load_si512(&kLanes);
    for (int count = std::popcount(ends); count > 0; count -= 8) {
      const __m512i from = _mm512_add_epi8(_mm512_permutexvar_epi8(lanes, starts), in_lane);
      const __m512i taken = _mm512_permutexvar_epi8(from, block);
      const __m512i last = _mm512_andnot_si512(taken, top_bits);
      const __m512i up_to_last =
          _mm512_xor_si512(last, _mm512_add_epi64(last, _mm512_set1_epi64(-1)));
      const __m512i groups = _mm512_and_si512(_mm512_and_si512(taken, up_to_last), low_bits);
      const __m512i of_14 = _mm512_maddubs_epi16(pairs, groups);
      const __m512i of_28 = _mm512_madd_epi16(of_14, quads);
      // The upper half is moved down to the lower one.
      const __m512i whole =
          _mm512_ternarylogic_epi64(lower_half, of_28, _mm512_srli_epi64(of_28, 4), 0xca);
      const auto room = static_cast<__mmask8>(count >= 8 ? 0xff : (1 << count) - 1);
      _mm512_mask_storeu_epi64(out, room, whole);
      out += std::min(count, 8);
      lanes = _mm512_add_epi8(lanes, _mm512_set1_epi8(8));
    }
    at += 64 - std::countl_zero(ends);
  }
  return static_cast<size_t>(out - begin);
}

#endif

struct Usable {
  std::array<VarintImplementation, 2> all;
  size_t count;
};

Usable usable() noexcept {
  Usable found{{{{"portable", decode_portable}}}, 1};
#if defined(REKORD_VARINT_X86)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2"))
    found.all[found.count++] = {"avx512+vbmi2", decode_wide};
#endif
  return found;
}

}  // namespace

std::span<const VarintImplementation> varint_implementations() noexcept {
  static const Usable found = usable();
  return {found.all.data(), found.count};
}

const VarintImplementation& VarintImplementation::best() noexcept {
  static const VarintImplementation chosen =
      portable_only() ? varint_implementations().front() : varint_implementations().back();
  return chosen;
}

size_t decode_varints(const std::byte* at, size_t bytes, int64_t* out) noexcept {
  return VarintImplementation::best().decode(at, bytes, out);
}

}  // namespace rekord

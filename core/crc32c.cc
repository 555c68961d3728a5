#include "crc32c.h"

#include <array>
#include <cstring>

#include "portable.h"

// The hardware paths are compiled through function attributes, so that one plain build
// runs on every CPU of its architecture and chooses when it starts.
#if defined(__GNUC__) && defined(__x86_64__)
#define REKORD_CRC_X86 1
#include <immintrin.h>
#elif defined(__GNUC__) && defined(__aarch64__) && defined(__AARCH64EL__) && \
    (defined(__linux__) || defined(__APPLE__))
#define REKORD_CRC_ARM 1
#include <arm_neon.h>
#if defined(__linux__)
#include <sys/auxv.h>
#endif
#endif

namespace rekord {
namespace {

constexpr uint32_t kPolynomial = 0x82F63B78u;  // reflected: bit 31 is x^0

// A register `bits` zeros later: times x^bits.
constexpr uint32_t after_zeros(uint32_t state, size_t bits) {
  for (; bits > 0; --bits) state = (state >> 1) ^ (kPolynomial & (0u - (state & 1u)));
  return state;
}

[[maybe_unused]] inline uint32_t load_u32(const std::byte* bytes) noexcept {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

[[maybe_unused]] inline uint64_t load_u64(const std::byte* bytes) noexcept {
  uint64_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// ---- Portable: slicing by eight ------------------------------------------------------
//
// kTables[z][b] is byte b followed by z bytes of zeros, so eight bytes are eight
// independent lookups. The word is put together by shifts: no byte order is assumed.

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) tables[0][byte] = after_zeros(byte, 8);
  for (size_t zeros = 1; zeros < 8; ++zeros)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[zeros - 1][byte];
      tables[zeros][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

inline uint64_t load_little(const std::byte* bytes) noexcept {
  uint64_t word = 0;
  for (unsigned i = 0; i < 8; ++i) word |= std::to_integer<uint64_t>(bytes[i]) << (8 * i);
  return word;
}

inline uint32_t slice(uint32_t state, uint64_t word) noexcept {
  // Grouped so that what waits for `state` is short: the later half does not.
  const uint32_t later = (kTables[3][(word >> 32) & 0xFF] ^ kTables[2][(word >> 40) & 0xFF]) ^
                         (kTables[1][(word >> 48) & 0xFF] ^ kTables[0][word >> 56]);
  const uint32_t w = static_cast<uint32_t>(word) ^ state;
  return ((kTables[7][w & 0xFF] ^ kTables[6][(w >> 8) & 0xFF]) ^ later) ^
         (kTables[5][(w >> 16) & 0xFF] ^ kTables[4][w >> 24]);
}

uint32_t extend_portable(uint32_t crc, const std::byte* bytes, size_t count) noexcept {
  uint32_t state = ~crc;
  for (; count >= 8; bytes += 8, count -= 8) state = slice(state, load_little(bytes));
  for (; count > 0; ++bytes, --count)
    state = (state >> 8) ^ kTables[0][(state ^ std::to_integer<uint32_t>(*bytes)) & 0xFF];
  return ~state;
}

uint32_t u64_portable(uint64_t value) noexcept { return ~slice(~0u, value); }

#if defined(REKORD_CRC_X86) || defined(REKORD_CRC_ARM)

// ---- What the two instruction sets have in common ------------------------------------
//
// word(state, w)     the register after eight more bytes
// multiply(a, b)     the carry-less product of two polynomials below x^32
//
// Both work on reflected words (bit 0 is the highest power), where the product of two
// words comes out one place low: it stands for a·b·x. Feeding a product to `word`, which
// multiplies by x^32, moves a register forward by n bits in two instructions:
//
//     word(0, multiply(state, forward(n)))  =  state·x^n      with forward(n) = x^(n-33)

constexpr uint32_t forward(size_t bits) { return after_zeros(0x80000000u /* x^0 */, bits - 33); }

#if defined(REKORD_CRC_X86)

#define REKORD_CRC_WORD __attribute__((target("sse4.2")))
#define REKORD_CRC_PRODUCT __attribute__((target("sse4.2,pclmul")))

REKORD_CRC_WORD inline uint32_t word(uint32_t state, uint64_t w) noexcept {
  return static_cast<uint32_t>(_mm_crc32_u64(state, w));
}

REKORD_CRC_PRODUCT inline uint64_t multiply(uint32_t a, uint32_t b) noexcept {
  const __m128i product = _mm_clmulepi64_si128(_mm_cvtsi32_si128(static_cast<int>(a)),
                                               _mm_cvtsi32_si128(static_cast<int>(b)), 0);
  return static_cast<uint64_t>(_mm_cvtsi128_si64(product));
}

#else

// Clang and GCC spell both the attribute and the builtin differently, and <arm_acle.h>
// of older compilers hides the intrinsics unless the whole file is built for them.
#if defined(__clang__)
#define REKORD_CRC_WORD __attribute__((target("crc")))
#define REKORD_CRC_PRODUCT __attribute__((target("crc,aes")))
#else
#define REKORD_CRC_WORD __attribute__((target("+crc")))
#define REKORD_CRC_PRODUCT __attribute__((target("+crc+crypto")))
#endif

REKORD_CRC_WORD inline uint32_t word(uint32_t state, uint64_t w) noexcept {
#if defined(__clang__)
  return __builtin_arm_crc32cd(state, w);
#else
  return __builtin_aarch64_crc32cx(state, w);
#endif
}

REKORD_CRC_PRODUCT inline uint64_t multiply(uint32_t a, uint32_t b) noexcept {
  return static_cast<uint64_t>(vmull_p64(a, b));
}

#endif

// The register after the first n = 1…8 bytes of `head` (bytes above them are ignored):
// they move to the end of a word of zeros, and what of the register does not fit before
// its end falls on the bytes that follow. No branch on the length, no loop over bytes.
REKORD_CRC_WORD inline uint32_t head_word(uint32_t state, uint64_t head, size_t n) noexcept {
  const uint32_t beyond = static_cast<uint32_t>((uint64_t{state} >> (4 * n)) >> (4 * n));
  return word(0, (head ^ state) << (64 - 8 * n)) ^ beyond;
}

// Fewer than eight bytes, loaded without touching one that is not ours.
inline uint64_t load_few(const std::byte* bytes, size_t count) noexcept {
  if (count >= 4)
    return load_u32(bytes) | uint64_t{load_u32(bytes + count - 4)} << (8 * (count - 4));
  const size_t middle = count / 2, last = count - 1;
  return std::to_integer<uint64_t>(bytes[0]) |
         std::to_integer<uint64_t>(bytes[middle]) << (8 * middle) |
         std::to_integer<uint64_t>(bytes[last]) << (8 * last);
}

// One dependent instruction for every eight bytes: best while there are few. The limit is
// measured; for lengths that vary it is lower than for lengths that a branch predictor
// has learnt, and those that vary are the ones that cost.
constexpr size_t kStraightBytes = 64;

REKORD_CRC_WORD inline uint32_t straight(uint32_t state, const std::byte* bytes,
                                         size_t count) noexcept {
  if (count < 8) return count == 0 ? state : head_word(state, load_few(bytes, count), count);
  const size_t n = (count - 1) % 8 + 1;
  const std::byte* const end = bytes + count;
  state = head_word(state, load_u64(bytes), n);
  for (bytes += n; bytes != end; bytes += 8) state = word(state, load_u64(bytes));
  return state;
}

// For cores that have the instruction but no carry-less product.
REKORD_CRC_WORD uint32_t extend_straight(uint32_t crc, const std::byte* bytes,
                                         size_t count) noexcept {
  return ~straight(~crc, bytes, count);
}

REKORD_CRC_WORD uint32_t u64_word(uint64_t value) noexcept { return ~word(~0u, value); }

// The instruction takes three cycles but starts every cycle: three streams keep it busy.
//
//     | head | 0…2 words | a: m words | b: m words | c: m words |
//
//     state = a·x^(128m) + b·x^(64m) + c
//
// m follows the length up to kStreamWords, so that a payload of some hundred bytes is one
// round without leftovers; longer buffers are cut into rounds of the full size first.

constexpr size_t kStreamWords = 128;

struct Forward {
  uint32_t once, twice;  // past one and past two streams
};

constexpr auto kForward = [] {
  std::array<Forward, kStreamWords + 1> table{};
  // Each from the one before: compilers bound the steps that a constant may take.
  table[1] = {forward(64), forward(128)};
  for (size_t m = 2; m <= kStreamWords; ++m)
    table[m] = {after_zeros(table[m - 1].once, 64), after_zeros(table[m - 1].twice, 128)};
  return table;
}();

REKORD_CRC_PRODUCT inline uint32_t three_streams(uint32_t a, const std::byte* bytes,
                                                 size_t m) noexcept {
  const std::byte* const second = bytes + 8 * m;
  const std::byte* const third = second + 8 * m;
  uint32_t b = 0, c = 0;
  for (size_t i = 0; i < 8 * m; i += 8) {
    a = word(a, load_u64(bytes + i));
    b = word(b, load_u64(second + i));
    c = word(c, load_u64(third + i));
  }
  return word(0, multiply(a, kForward[m].twice) ^ multiply(b, kForward[m].once)) ^ c;
}

REKORD_CRC_PRODUCT uint32_t extend_streams(uint32_t crc, const std::byte* bytes,
                                           size_t count) noexcept {
  if (count <= kStraightBytes) return ~straight(~crc, bytes, count);
  const size_t n = (count - 1) % 8 + 1;
  uint32_t state = head_word(~crc, load_u64(bytes), n);
  bytes += n;
  size_t words = (count - n) / 8;
  for (; words > 3 * kStreamWords; words -= 3 * kStreamWords) {
    state = three_streams(state, bytes, kStreamWords);
    bytes += 8 * 3 * kStreamWords;
  }
  const size_t m = words / 3;
  for (size_t extra = words - 3 * m; extra > 0; --extra, bytes += 8)
    state = word(state, load_u64(bytes));
  if (m > 0) state = three_streams(state, bytes, m);
  return ~state;
}

#endif

#if defined(REKORD_CRC_X86)

// ---- AVX-512: folding ----------------------------------------------------------------
//
// Four registers hold 256 bytes, sixteen lanes of 128 bits. A lane moves forward over
// n bits by two products, one for each half, and is added to the lane that stands there:
//
//     lane = first·x^64 + second        lane·x^n = first·x^(n+64) + second·x^n
//
// so every step of 256 bytes costs eight products, and one last step brings all sixteen
// lanes to the final 128 bits, which the plain instruction reduces.
//
//     | 0 0 0 … payload |  256  |  256  |  …  |  256  |
//       └── block one ──┘                            └ lane 15
//
// The first block is filled up with zeros in front, which do not count, by masked loads,
// which never fault on bytes that are masked out: no tail, and no branch on the length
// but the number of blocks.

#define REKORD_CRC_FOLD \
  __attribute__((target("sse4.2,pclmul,avx512f,avx512bw,avx512vl,vpclmulqdq")))

constexpr size_t kBlockBytes = 256;

// For each lane the multipliers of its two halves.
struct alignas(64) Multipliers {
  std::array<uint64_t, 8> halves;
};

constexpr Multipliers kNextBlock = [] {
  Multipliers all{};
  for (size_t half = 0; half < 8; half += 2) {
    all.halves[half] = forward(8 * kBlockBytes + 64);
    all.halves[half + 1] = forward(8 * kBlockBytes);
  }
  return all;
}();

// Lane 15 is where the others go; its multipliers stay zero and it is added as it is.
constexpr std::array<Multipliers, 4> kLastLane = [] {
  std::array<Multipliers, 4> all{};
  for (size_t lane = 0; lane < 15; ++lane) {
    const size_t bits = 128 * (15 - lane);
    all[lane / 4].halves[lane % 4 * 2] = forward(bits + 64);
    all[lane / 4].halves[lane % 4 * 2 + 1] = forward(bits);
  }
  return all;
}();

struct alignas(64) Positions {
  std::array<uint8_t, kBlockBytes> bytes;
};

constexpr Positions kPositions = [] {
  Positions positions{};
  for (size_t i = 0; i < kBlockBytes; ++i) positions.bytes[i] = static_cast<uint8_t>(i);
  return positions;
}();

REKORD_CRC_FOLD inline __m512i fold(__m512i lanes, __m512i multipliers, __m512i onto) noexcept {
  const __m512i first = _mm512_clmulepi64_epi128(lanes, multipliers, 0x00);
  const __m512i second = _mm512_clmulepi64_epi128(lanes, multipliers, 0x11);
  return _mm512_ternarylogic_epi64(first, second, onto, 0x96);  // the sum of the three
}

// The register is added to the first four bytes of the message, wherever in the first
// block they are: it is repeated all over, turned so that each of its bytes is right
// where it is wanted, and kept only there by a window on kFourBytes that slides.
struct alignas(64) Window {
  std::array<uint8_t, 2 * kBlockBytes> bytes;
};

constexpr Window kFourBytes = [] {
  Window window{};
  for (size_t i = 0; i < 4; ++i) window.bytes[kBlockBytes + i] = 0xFF;
  return window;
}();

struct FirstBlock {
  uintptr_t address;  // before the buffer: an integer may point there, a pointer may not
  __m512i zeros;      // how many, in every byte
  __m512i state;
  const uint8_t* four_bytes;
};

REKORD_CRC_FOLD inline __m512i first_lanes(const FirstBlock& block, size_t at) noexcept {
  const __m512i positions = _mm512_load_si512(kPositions.bytes.data() + at);
  const __mmask64 ours = _mm512_cmpge_epu8_mask(positions, block.zeros);
  const __m512i data =
      _mm512_maskz_loadu_epi8(ours, reinterpret_cast<const void*>(block.address + at));
  const __m512i four_bytes = _mm512_loadu_si512(block.four_bytes + at);
  return _mm512_ternarylogic_epi64(data, four_bytes, block.state, 0x78);  // data ^ (four & state)
}

REKORD_CRC_FOLD inline __m512i to_last_lane(__m512i lanes, size_t i, __m512i onto) noexcept {
  return fold(lanes, _mm512_load_si512(kLastLane[i].halves.data()), onto);
}

REKORD_CRC_FOLD uint32_t extend_fold(uint32_t crc, const std::byte* bytes, size_t count) noexcept {
  if (count <= kStraightBytes) return ~straight(~crc, bytes, count);

  const size_t filled = (count - 1) % kBlockBytes + 1;
  const size_t zeros = kBlockBytes - filled;
  const uint32_t turned = std::rotl(~crc, static_cast<int>(8 * (zeros % 4)));
  const FirstBlock block{
      reinterpret_cast<uintptr_t>(bytes) - zeros, _mm512_set1_epi8(static_cast<char>(zeros)),
      _mm512_set1_epi32(static_cast<int>(turned)), kFourBytes.bytes.data() + filled};
  __m512i a = first_lanes(block, 0), b = first_lanes(block, 64);
  __m512i c = first_lanes(block, 128), d = first_lanes(block, 192);

  const std::byte* const end = bytes + count;
  bytes += filled;
  if (bytes != end) {
    // Fewer than four bytes in the first block leave a rest of the register for the next.
    const uint32_t beyond = filled < 4 ? ~crc >> (8 * filled) : 0;
    __m512i rest = _mm512_zextsi128_si512(_mm_cvtsi32_si128(static_cast<int>(beyond)));
    const __m512i next = _mm512_load_si512(kNextBlock.halves.data());
    do {
      a = fold(a, next, _mm512_xor_si512(rest, _mm512_loadu_si512(bytes)));
      b = fold(b, next, _mm512_loadu_si512(bytes + 64));
      c = fold(c, next, _mm512_loadu_si512(bytes + 128));
      d = fold(d, next, _mm512_loadu_si512(bytes + 192));
      rest = _mm512_setzero_si512();
      bytes += kBlockBytes;
    } while (bytes != end);
  }

  const __m512i lane_15 = _mm512_maskz_mov_epi64(0xC0, d);
  const __m512i sum =
      _mm512_xor_si512(to_last_lane(a, 0, to_last_lane(b, 1, _mm512_setzero_si512())),
                       to_last_lane(c, 2, to_last_lane(d, 3, lane_15)));
  // Not the unmasked intrinsics: GCC 12 calls their own insides uninitialised.
  const __m256i half = _mm256_xor_si256(_mm512_maskz_extracti64x4_epi64(0xFF, sum, 0),
                                        _mm512_maskz_extracti64x4_epi64(0xFF, sum, 1));
  const __m128i last =
      _mm_xor_si128(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
  const uint32_t reduced = word(0, static_cast<uint64_t>(_mm_cvtsi128_si64(last)));
  return ~word(reduced, static_cast<uint64_t>(_mm_extract_epi64(last, 1)));
}

#endif

// ---- The choice ----------------------------------------------------------------------

struct Usable {
  std::array<CrcImplementation, 4> all;
  size_t count;
};

Usable usable() noexcept {
  Usable found{{{{"portable", extend_portable, u64_portable}}}, 1};
  const auto add = [&found](bool runs_here, const CrcImplementation& implementation) {
    if (runs_here) found.all[found.count++] = implementation;
  };
#if defined(REKORD_CRC_X86)
  __builtin_cpu_init();
  const bool has_word = __builtin_cpu_supports("sse4.2");
  const bool has_product = has_word && __builtin_cpu_supports("pclmul");
  const bool has_fold = has_product && __builtin_cpu_supports("avx512f") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("vpclmulqdq");
  add(has_word, {"sse4.2", extend_straight, u64_word});
  add(has_product, {"sse4.2+pclmul", extend_streams, u64_word});
  add(has_fold, {"avx512+vpclmulqdq", extend_fold, u64_word});
#elif defined(REKORD_CRC_ARM)
#if defined(__linux__)
  // The kernel's own bits, since old headers do not name them.
  const unsigned long features = getauxval(AT_HWCAP);
  const bool has_word = (features & (1ul << 7)) != 0;
  const bool has_product = has_word && (features & (1ul << 4)) != 0;
#else
  const bool has_word = true, has_product = true;  // every Arm Mac has both
#endif
  add(has_word, {"crc32", extend_straight, u64_word});
  add(has_product, {"crc32+pmull", extend_streams, u64_word});
#else
  (void)add;
#endif
  return found;
}

}  // namespace

std::span<const CrcImplementation> crc32c_implementations() noexcept {
  static const Usable found = usable();
  return {found.all.data(), found.count};
}

const CrcImplementation& CrcImplementation::best() noexcept {
  static const CrcImplementation chosen =
      portable_only() ? crc32c_implementations().front() : crc32c_implementations().back();
  return chosen;
}

}  // namespace rekord

// A schema, compiled: which record keys there are and what each must hold.
//
// The way a well-behaved writer stores one feature is almost all fixed:
//
//     0a E 0a K key… 12 F T L 0a P value…
//        │    │         │ │ │    └ bytes of the value
//        │    │         │ │ └ P + 2    T: 0a bytes, 12 floats, 1a ints
//        │    │         │ └ kind
//        │    │         └ P + 4
//        │    └ bytes of the key
//        └ K + P + 8
//
// While all lengths fit one byte, these K + 10 bytes are a constant plus P at four
// known places. So a few comparisons of words verify key, kind and every length
// together (Header::matches). What does not match is not wrong, only less common, and
// is parsed.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "bytes.h"
#include "example.h"

namespace rekord {

// What a row is when a slot's key is absent, or has no kind set.
enum class Missing : uint8_t {
  refuse,  // required
  hole,    // optional: a value that is not there, remembered as such
  fill,    // the slot's default
};

// Readers of predicted headers load whole words: this many bytes after the last
// payload byte must be readable.
inline constexpr size_t kPadding = 64;

// What a slot is declared to hold.
struct SlotSpec {
  std::string key;
  Kind kind = Kind::ints;
  // Values a row. Ragged: any multiple of `count`.
  uint64_t count = 1;
  bool ragged = false;
  bool utf8 = false;  // of bytes
  // Not wanted: recognised, so that it can be skipped quickly.
  bool skip = false;
  Missing missing = Missing::refuse;
  // Whether an empty list where exactly `count` values are due is a hole, if holes are
  // allowed; otherwise it is a wrong number of values.
  bool empty_is_missing = true;
  // The default of a row, in the form of the kind.
  std::vector<int64_t> fill_ints;
  std::vector<float> fill_floats;
  std::vector<std::string> fill_bytes;
};

// The header of a slot in the form above. Kept apart from the rest of the slot, so
// that the headers of a whole plan fit the first cache.
//
// It is recognised by four loads without a branch between them:
//
//     0a E 0a K │ first eight bytes of the key │ its last eight │ 12 F T L 0a P
//
// A key of up to eight bytes is loaded twice and masked; one of more than 16 has a middle
// that is compared afterwards.
class alignas(64) Header {
 public:
  explicit Header(const SlotSpec& spec) noexcept;

  size_t size() const noexcept { return bytes_; }
  Kind kind() const noexcept { return kind_; }
  bool skip() const noexcept { return skip_; }

  // Whether the bytes at `at` are this header for one value of `length` bytes.
  // Reads up to kPadding bytes.
  bool matches(const std::byte* at, size_t& length) const noexcept {
    const uint64_t list = load_le<uint64_t>(at + bytes_ - 8) >> 16;
    const uint64_t p = list >> 40;
    uint64_t differs = load_le<uint32_t>(at) ^ (start_ + (p << 8));
    differs |= (load_le<uint64_t>(at + 4) ^ key_first_) & key_mask_;
    differs |= (load_le<uint64_t>(at + key_last_at_) ^ key_last_) & key_mask_;
    differs |= list ^ (list_ + p * kListLengths);
    if (differs != 0 || p >= limit_) return false;
    if (has_middle_ && !middle_matches(at)) [[unlikely]]
      return false;
    length = static_cast<size_t>(p);
    return true;
  }

  static constexpr size_t kMostWords = kPadding / 8;

  // The header's words for a value of `length` bytes, and how they are compared:
  // all but the last in full, the last under the mask.
  void expect(size_t length, std::array<uint64_t, kMostWords>& words) const noexcept {
    for (size_t i = 0; i <= last_; ++i) words[i] = base_[i] + length * lengths_[i];
  }
  size_t last_word() const noexcept { return last_; }
  uint64_t tail_mask() const noexcept { return tail_mask_; }

 private:
  static constexpr uint64_t kListLengths = 0x010001000100;  // 1 at F, L and P

  bool middle_matches(const std::byte* at) const noexcept;

  uint32_t bytes_;
  uint32_t start_ = 0;  // 0a E 0a K for an empty value
  uint64_t key_first_ = 0;
  uint64_t key_last_ = 0;
  uint64_t key_mask_ = 0;
  uint64_t list_ = 0;  // for an empty value
  uint32_t key_last_at_ = 4;
  uint16_t last_ = 0;        // index of the last word
  bool has_middle_ = false;  // the key has more bytes than the two words
  uint8_t limit_ = 0;        // of value bytes, so that E fits one byte; 0: the key is too long
  Kind kind_;
  bool skip_;
  uint64_t tail_mask_ = 0;  // of the last word
  std::array<uint64_t, kMostWords> base_{};
  std::array<uint64_t, kMostWords> lengths_{};  // 1 at each byte that P is added to
};

// From a key to its slot: one multiplication and one probe. Nearly always without
// collisions; keys that collide go to the next positions.
class Lookup {
 public:
  static constexpr uint32_t kNone = 0xffffffff;

  void build(const std::vector<SlotSpec>& slots);

  // Reads eight bytes from `key`, even if it is shorter. The slot is a
  // candidate: the caller compares the key, and calls `find` if it differs.
  uint32_t candidate(const std::byte* key, size_t length) const noexcept {
    return table_[mix(key, length) * seed_ >> shift_];
  }

  uint32_t find(std::string_view key, const std::vector<SlotSpec>& slots) const noexcept;

 private:
  static uint64_t mix(const std::byte* key, size_t length) noexcept {
    uint64_t first = load_le<uint64_t>(key);
    uint64_t last;
    if (length >= 8) {
      last = load_le<uint64_t>(key + length - 8);
    } else {
      first &= (uint64_t{1} << (8 * length)) - 1;
      last = first;
    }
    return first ^ (last * 0x9e3779b97f4a7c15u) ^ length * 0xff51afd7ed558ccdu;
  }
  // Of a key without padding.
  static uint64_t mix(std::string_view key) noexcept;
  // Fills the table; false where two keys collide and `probe` does not allow it.
  bool place(const std::vector<uint64_t>& mixed, bool probe);

  std::vector<uint32_t> table_{kNone, kNone};  // a power of two, never full
  uint64_t seed_ = 1;
  int shift_ = 63;
};

// The slots of one map: an Example's features, a context, or feature lists.
class Plan {
 public:
  // `strict`: a key that has no slot is refused.
  explicit Plan(std::vector<SlotSpec> specs, bool strict = false);

  const std::vector<SlotSpec>& slots() const noexcept { return slots_; }
  const std::vector<Header>& headers() const noexcept { return headers_; }
  const Lookup& lookup() const noexcept { return lookup_; }
  bool strict() const noexcept { return strict_; }
  // Whether a key that has no slot is refused. No column can have an empty name, so
  // an empty key has no slot.
  bool refuses(std::string_view key) const noexcept { return strict_ && !key.empty(); }

 private:
  std::vector<SlotSpec> slots_;
  bool strict_;
  std::vector<Header> headers_;
  Lookup lookup_;
};

}  // namespace rekord

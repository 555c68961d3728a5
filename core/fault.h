// What went wrong, at which byte, and two numbers that disagree.
//
// The core states facts. Which sentence they make, and what to do about them,
// is decided in Python (src/rekord/faults.py), once.
#pragma once

#include <cstdint>

namespace rekord {

enum class Fault : uint8_t {
  none = 0,
  // Frames. `at` is the offset of the frame's first byte in the scanned bytes.
  length_crc,         // expected: the stored checksum; found: the computed one
  payload_crc,        // expected: the stored checksum; found: the computed one
  cut_header,         // expected: 12; found: the bytes that are left
  cut_record,         // expected: the bytes of the whole frame; found: those left
  impossible_length,  // expected: the bytes left at most; found: the length claimed
  // Protobuf. `at` is the offset in the payload of the element that is wrong.
  varint,         // a number does not end within ten bytes, or not at all
  length,         // expected: the bytes that are left; found: the length claimed
  tag,            // found: the tag
  group,          // found: the tag that ends it, or 0 at the end of the bytes
  key_utf8,       // a map key is not UTF-8
  packed_floats,  // found: a length that is not a multiple of four
  depth,          // found: number of levels allowed
  // A payload against a plan. `at` is the offset in the payload of the feature.
  missing,      // a required key is absent, or has no kind set
  wrong_kind,   // expected and found: Kind
  wrong_count,  // expected and found: numbers of values
  not_utf8,     // a text value
  unknown_key,  // expected: where the key begins in the payload; found: its bytes
};

struct Problem {
  Fault fault = Fault::none;
  uint64_t at = 0;
  uint64_t expected = 0;
  uint64_t found = 0;

  explicit operator bool() const noexcept { return fault != Fault::none; }
};

}  // namespace rekord

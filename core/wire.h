// Protobuf's wire format: a message is a run of fields, and a field is a tag and
// a value.
//
//     tag = varint(field number << 3 | wire type)
//
//     wire type  value
//     0 VARINT   7 bits a byte, lowest first, top bit set on all but the last
//     1 I64      8 bytes
//     2 LEN      varint length, then that many bytes
//     3 SGROUP   fields up to the matching 4 EGROUP (only skipped here)
//     5 I32      4 bytes
//
// A reader skips fields that it does not know; so do we.
#pragma once

#include "bytes.h"
#include "fault.h"

namespace rekord {

enum class Wire : uint8_t { varint = 0, i64 = 1, len = 2, sgroup = 3, egroup = 4, i32 = 5 };

struct Tag {
  uint32_t field;
  Wire wire;
  uint32_t raw;
  bool padded;  // in more bytes than it needs: the same to protobuf, unknown to TensorFlow
};

// As many levels of nesting as protobuf itself takes.
inline constexpr int kDeepest = 100;

// A walk over one message. Offsets in problems are counted from `origin`, the
// first byte of the payload, even inside a nested message; `depth`
// is the nesting level of the message.
class Reader {
 public:
  Reader(Bytes message, const std::byte* origin, int depth = 0) noexcept
      : cursor_(message), origin_(origin), depth_(depth) {}

  bool done() const noexcept { return cursor_.done(); }
  uint64_t offset() const noexcept { return static_cast<uint64_t>(cursor_.here() - origin_); }
  Bytes rest() const noexcept { return {cursor_.here(), cursor_.left()}; }

  Problem tag(Tag& out) noexcept { return tag(1, out); }
  // The bits above 64 in a tenth byte are dropped, as protobuf does.
  Problem varint(uint64_t& out) noexcept { return number(70, out); }
  // The bytes of a LEN value.
  Problem bytes(Bytes& out) noexcept;
  Problem fixed(size_t size, Bytes& out) noexcept;
  // Skips the value of a field whose tag has just been read.
  Problem skip(Tag tag) noexcept { return skip(tag, depth_); }

 private:
  Problem number(int most_bits, uint64_t& out) noexcept;
  Problem tag(uint32_t least_field, Tag& out) noexcept;
  Problem skip(Tag tag, int depth) noexcept;

  Cursor cursor_;
  const std::byte* origin_;
  int depth_;
};

// True where `text` is well-formed UTF-8 (no overlong forms, no surrogates).
bool is_utf8(Bytes text) noexcept;

}  // namespace rekord

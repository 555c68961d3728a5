#include "wire.h"

namespace rekord {
namespace {

// Tags and lengths take five bytes at the most; protobuf refuses longer forms.
constexpr int kShortBits = 35;

}  // namespace

Problem Reader::number(int most_bits, uint64_t& out) noexcept {
  const std::byte* begin = cursor_.here();
  uint64_t value = 0;
  for (int shift = 0; shift < most_bits && !cursor_.done(); shift += 7) {
    const auto byte = std::to_integer<uint64_t>(cursor_.take(1)[0]);
    value |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      out = value;
      return {};
    }
  }
  cursor_.back_to(begin);
  return {Fault::varint, offset(), 0, 0};
}

Problem Reader::tag(uint32_t least_field, Tag& out) noexcept {
  const uint64_t at = offset();
  uint64_t raw = 0;
  if (Problem problem = number(kShortBits, raw)) return problem;
  const auto wire = static_cast<uint8_t>(raw & 7);
  if (raw > 0xffffffff || raw >> 3 < least_field || wire > 5) return {Fault::tag, at, 0, raw};
  const bool padded = offset() - at > 1 && cursor_.here()[-1] == std::byte{0};
  out = {static_cast<uint32_t>(raw >> 3), static_cast<Wire>(wire), static_cast<uint32_t>(raw),
         padded};
  return {};
}

Problem Reader::bytes(Bytes& out) noexcept {
  const uint64_t at = offset();
  uint64_t length = 0;
  if (Problem problem = number(kShortBits, length)) return problem;
  if (length > cursor_.left()) return {Fault::length, at, cursor_.left(), length};
  out = cursor_.take(static_cast<size_t>(length));
  return {};
}

Problem Reader::fixed(size_t size, Bytes& out) noexcept {
  if (size > cursor_.left()) return {Fault::length, offset(), cursor_.left(), size};
  out = cursor_.take(size);
  return {};
}

Problem Reader::skip(Tag tag, int depth) noexcept {
  Bytes ignored;
  uint64_t value = 0;
  switch (tag.wire) {
    case Wire::varint:
      return varint(value);
    case Wire::i64:
      return fixed(8, ignored);
    case Wire::len:
      return bytes(ignored);
    case Wire::i32:
      return fixed(4, ignored);
    case Wire::egroup:
      return {Fault::group, offset(), 0, tag.raw};
    case Wire::sgroup:
      break;
  }
  if (depth >= kDeepest) return {Fault::depth, offset(), 0, kDeepest};
  while (true) {
    if (done()) return {Fault::group, offset(), tag.raw + 1, 0};
    Tag inner{};
    // Field 0 does not exist, but inside a group protobuf lets it pass.
    if (Problem problem = this->tag(0, inner)) return problem;
    if (inner.wire == Wire::egroup) {
      if (inner.field == tag.field) return {};
      return {Fault::group, offset(), tag.raw + 1, inner.raw};
    }
    if (Problem problem = skip(inner, depth + 1)) return problem;
  }
}

bool is_utf8(Bytes text) noexcept {
  const std::byte* at = text.data();
  const std::byte* end = at + text.size();
  const auto follows = [](std::byte b) { return (b & std::byte{0xc0}) == std::byte{0x80}; };
  while (at != end) {
    // Eight ASCII bytes at a time: most text is.
    if (end - at >= 8 && (load_le<uint64_t>(at) & 0x8080808080808080u) == 0) {
      at += 8;
      continue;
    }
    const auto lead = std::to_integer<uint32_t>(*at);
    if (lead < 0x80) {
      ++at;
      continue;
    }
    const auto left = end - at;
    if (lead < 0xc2) return false;  // a continuation byte, or an overlong form
    if (lead < 0xe0) {
      if (left < 2 || !follows(at[1])) return false;
      at += 2;
    } else if (lead < 0xf0) {
      if (left < 3 || !follows(at[1]) || !follows(at[2])) return false;
      const auto second = std::to_integer<uint32_t>(at[1]);
      if ((lead == 0xe0 && second < 0xa0) || (lead == 0xed && second >= 0xa0)) return false;
      at += 3;
    } else {
      if (lead > 0xf4 || left < 4) return false;
      if (!follows(at[1]) || !follows(at[2]) || !follows(at[3])) return false;
      const auto second = std::to_integer<uint32_t>(at[1]);
      if ((lead == 0xf0 && second < 0x90) || (lead == 0xf4 && second >= 0x90)) return false;
      at += 4;
    }
  }
  return true;
}

}  // namespace rekord

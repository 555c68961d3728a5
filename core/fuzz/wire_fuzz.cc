// The wire reader agrees with the plainest reading of protobuf's rules that we can write.

#include <cstdlib>
#include <optional>

#include "wire.h"

namespace {

using namespace rekord;

void require(bool holds) {
  if (!holds) std::abort();
}

// A reading by index: no cursor, no fault, nothing shared with the code under test.
struct Plain {
  const uint8_t* data;
  size_t size;

  // The number at `at`, which moves past it; nothing where it has no end within `most` bytes.
  std::optional<uint64_t> number(size_t& at, size_t most) const {
    uint64_t value = 0;
    for (size_t i = 0; i < most; ++i) {
      if (at + i >= size) return std::nullopt;
      const uint64_t group = data[at + i] & 0x7fu;
      value += i == 9 ? group << 63 : group << (7 * i);
      if (data[at + i] < 0x80) {
        at += i + 1;
        return value;
      }
    }
    return std::nullopt;
  }

  std::optional<uint64_t> tag(size_t& at, uint64_t least_field = 1) const {
    const auto tag = number(at, 5);
    if (!tag || *tag >> 32 != 0 || *tag >> 3 < least_field || (*tag & 7) > 5) return std::nullopt;
    return tag;
  }

  bool skip(size_t& at, uint64_t tag, int depth) const {
    uint64_t length = 0;
    switch (tag & 7) {
      case 0:
        return number(at, 10).has_value();
      case 1:
        length = 8;
        break;
      case 5:
        length = 4;
        break;
      case 2: {
        const auto claimed = number(at, 5);
        if (!claimed) return false;
        length = *claimed;
        break;
      }
      case 3:
        if (depth >= 100) return false;
        while (at < size) {
          const auto inner = this->tag(at, 0);
          if (!inner) return false;
          if ((*inner & 7) == 4) return *inner == tag + 1;
          if (!skip(at, *inner, depth + 1)) return false;
        }
        return false;
      default:
        return false;
    }
    if (length > size - at) return false;
    at += length;
    return true;
  }
};

// Decodes code points and asks whether each was written in its one right form.
bool plain_utf8(const uint8_t* data, size_t size) {
  for (size_t at = 0; at < size;) {
    const uint32_t lead = data[at];
    const size_t width = lead < 0x80       ? 1
                         : lead >> 5 == 6  ? 2
                         : lead >> 4 == 14 ? 3
                         : lead >> 3 == 30 ? 4
                                           : 0;
    if (width == 0 || width > size - at) return false;
    uint32_t point = width == 1 ? lead : lead & (0x7fu >> width);
    for (size_t i = 1; i < width; ++i) {
      if (data[at + i] >> 6 != 2) return false;
      point = point << 6 | (data[at + i] & 0x3fu);
    }
    const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < least[width] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
      return false;
    at += width;
  }
  return true;
}

void walk(Bytes bytes, int depth) {
  const Plain plain{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  Reader reader(bytes, bytes.data(), depth);
  size_t at = 0;
  while (!reader.done()) {
    require(reader.offset() == at);
    Tag tag{};
    const Problem bad_tag = reader.tag(tag);
    const auto expected = plain.tag(at);
    require(!bad_tag == expected.has_value());
    if (bad_tag) {
      require(bad_tag.at <= bytes.size());
      return;
    }
    require(tag.raw == *expected && tag.field == *expected >> 3);
    const Problem bad_value = reader.skip(tag);
    require(!bad_value == plain.skip(at, *expected, depth));
    if (bad_value) {
      require(bad_value.at <= bytes.size());
      return;
    }
  }
  require(at == bytes.size());
}

void numbers(Bytes bytes) {
  const Plain plain{reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size()};
  Reader reader(bytes, bytes.data());
  size_t at = 0;
  while (true) {
    uint64_t value = 0;
    const Problem problem = reader.varint(value);
    const auto expected = plain.number(at, 10);
    require(!problem == expected.has_value());
    require(reader.offset() == at);  // a number that has no end is not read at all
    if (problem) return;
    require(value == *expected);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  walk(bytes, 0);
  walk(bytes, 97);
  numbers(bytes);
  require(is_utf8(bytes) == plain_utf8(data, size));
  // From every place in the first bytes: eight at a time must not hide what one at a time sees.
  for (size_t skip = 1; skip < 8 && skip < size; ++skip)
    require(is_utf8(bytes.subspan(skip)) == plain_utf8(data + skip, size - skip));
  return 0;
}

// A bounds-checked place in a span of hostile bytes.
//
// Nothing here allocates or throws. A read that does not fit leaves the cursor
// unchanged and reports that.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

namespace rekord {

using Bytes = std::span<const std::byte>;

inline std::string_view as_text(Bytes bytes) noexcept {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Little-endian loads and stores that do not care about alignment.
template <class Number>
Number load_le(const std::byte* from) noexcept {
  Number value;
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(&value, from, sizeof value);
  } else {
    value = 0;
    for (size_t i = 0; i < sizeof value; ++i)
      value |= static_cast<Number>(std::to_integer<uint8_t>(from[i])) << (8 * i);
  }
  return value;
}

template <class Number>
void store_le(std::byte* to, Number value) noexcept {
  if constexpr (std::endian::native == std::endian::little) {
    std::memcpy(to, &value, sizeof value);
  } else {
    for (size_t i = 0; i < sizeof value; ++i)
      to[i] = static_cast<std::byte>((value >> (8 * i)) & 0xff);
  }
}

class Cursor {
 public:
  explicit Cursor(Bytes bytes) noexcept : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const noexcept { return at_ == end_; }
  size_t left() const noexcept { return static_cast<size_t>(end_ - at_); }
  const std::byte* here() const noexcept { return at_; }

  // Moves past `count` bytes and returns them; the caller has compared with left().
  Bytes take(size_t count) noexcept {
    Bytes taken(at_, count);
    at_ += count;
    return taken;
  }

  void back_to(const std::byte* place) noexcept { at_ = place; }

 private:
  const std::byte* at_;
  const std::byte* end_;
};

}  // namespace rekord

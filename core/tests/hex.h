// Bytes as a person writes them down: hex("0a 02 | 61 62"), ff*9 for nine of them.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "bytes.h"
#include "frame.h"

namespace rekord::testing {

using Buffer = std::vector<std::byte>;

inline Buffer hex(std::string_view text) {
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    std::abort();  // a slip in a test's own table
  };
  Buffer bytes;
  for (size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == '|') {
      ++i;
    } else if (text[i] == '*') {
      size_t times = 0;
      for (++i; i < text.size() && text[i] >= '0' && text[i] <= '9'; ++i)
        times = times * 10 + static_cast<size_t>(text[i] - '0');
      bytes.insert(bytes.end(), times - 1, Buffer(bytes).back());
    } else {
      bytes.push_back(static_cast<std::byte>(digit(text.at(i)) << 4 | digit(text.at(i + 1))));
      i += 2;
    }
  }
  return bytes;
}

inline Buffer text(std::string_view characters) {
  const Bytes bytes = std::as_bytes(std::span(characters));
  return {bytes.begin(), bytes.end()};
}

inline Buffer join(std::initializer_list<Buffer> parts) {
  Buffer whole;
  for (const Buffer& part : parts) whole.insert(whole.end(), part.begin(), part.end());
  return whole;
}

inline Buffer framed(const Buffer& payload) {
  Buffer frame(payload.size() + kFramingBytes);
  write_frame(frame.data(), payload);
  return frame;
}

}  // namespace rekord::testing

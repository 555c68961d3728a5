#include "frame.h"

#include <algorithm>

#include "crc32c.h"

namespace rekord {
namespace {

// Longer than any message that protobuf takes: a length like this beside too few
// bytes is not a file that was cut, it is a length that was never true.
constexpr uint64_t kLongestMessage = 0x7fffffff;

}  // namespace

bool header_agrees(const std::byte* header) noexcept {
  return load_le<uint32_t>(header + 8) == mask_crc(crc32c_u64(load_le<uint64_t>(header)));
}

FrameProbe probe_header(Bytes bytes, size_t at, uint64_t remaining) noexcept {
  FrameProbe look;
  const size_t have = bytes.size() - at;
  const uint64_t most = remaining - at;
  if (have < kHeaderBytes) {
    if (most == 0) return look;
    if (have == most)
      look.problem = {Fault::cut_header, at, kHeaderBytes, have};
    else
      look.needed = kHeaderBytes;
    return look;
  }
  const std::byte* header = bytes.data() + at;
  const uint64_t length = load_le<uint64_t>(header);
  const uint32_t stored = load_le<uint32_t>(header + 8);
  const uint32_t computed = mask_crc(crc32c_u64(length));
  if (stored != computed) {
    look.problem = {Fault::length_crc, at, stored, computed};
    return look;
  }
  if (most < kFramingBytes || length > most - kFramingBytes) {
    if (length > kLongestMessage)
      look.problem = {Fault::impossible_length, at, most - kHeaderBytes, length};
    else
      look.problem = {Fault::cut_record, at, length + kFramingBytes, most};
    return look;
  }
  look.needed = length + kFramingBytes;
  if (have < look.needed) return look;
  look.payload = {header + kHeaderBytes, static_cast<size_t>(length)};
  look.whole = true;
  return look;
}

FrameProbe probe_frame(Bytes bytes, size_t at, uint64_t remaining) noexcept {
  FrameProbe look = probe_header(bytes, at, remaining);
  if (!look.whole) return look;
  const uint32_t stored = load_le<uint32_t>(look.payload.data() + look.payload.size());
  const uint32_t computed = masked_crc32c(look.payload);
  if (stored != computed) {
    look.whole = false;
    look.problem = {Fault::payload_crc, at, stored, computed};
  }
  return look;
}

SkippedFrames skip_frames(Bytes bytes, uint64_t remaining, size_t most) noexcept {
  SkippedFrames result;
  while (result.frames < most) {
    const FrameProbe look = probe_header(bytes, result.consumed, remaining);
    result.needed = look.needed;
    result.problem = look.problem;
    if (!look.whole) break;
    result.consumed += look.payload.size() + kFramingBytes;
    ++result.frames;
  }
  return result;
}

Scan scan(Bytes bytes, uint64_t remaining, std::vector<Extent>& payloads) {
  size_t at = 0;
  while (true) {
    const FrameProbe look = probe_frame(bytes, at, remaining);
    if (!look.whole) return {at, look.needed, look.problem};
    payloads.push_back({at + kHeaderBytes, look.payload.size()});
    at += look.payload.size() + kFramingBytes;
  }
}

Resync find_frame(Bytes bytes, size_t from, uint64_t remaining, uint64_t budget) noexcept {
  size_t at = from;
  uint64_t spent = 0;
  for (; at + kHeaderBytes <= bytes.size(); ++at) {
    const std::byte* header = bytes.data() + at;
    if (!header_agrees(header)) continue;
    const uint64_t length = load_le<uint64_t>(header);
    const uint64_t most = remaining - at;
    if (most < kFramingBytes || length > most - kFramingBytes || length > budget - spent) continue;
    const size_t have = bytes.size() - at;
    if (have < kFramingBytes || length > have - kFramingBytes)
      return {at, false, length + kFramingBytes, spent};
    const Bytes payload(header + kHeaderBytes, static_cast<size_t>(length));
    if (load_le<uint32_t>(payload.data() + payload.size()) == masked_crc32c(payload))
      return {at, true, 0, spent};
    spent += length;
  }
  return {std::min(at, bytes.size()), false, kHeaderBytes, spent};
}

void write_frame(std::byte* out, Bytes payload) noexcept {
  const uint64_t length = payload.size();
  store_le<uint64_t>(out, length);
  store_le<uint32_t>(out + 8, mask_crc(crc32c_u64(length)));
  if (!payload.empty()) std::memcpy(out + kHeaderBytes, payload.data(), payload.size());
  store_le<uint32_t>(out + kHeaderBytes + payload.size(), masked_crc32c(payload));
}

}  // namespace rekord

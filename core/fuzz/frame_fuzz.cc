// Frames are found where they are and nowhere else: in any bytes, in a file made of the
// bytes, and in that file with one byte changed.

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "frame.h"

namespace {

using namespace rekord;

void require(bool holds) {
  if (!holds) std::abort();
}

bool same(Bytes a, Bytes b) { return std::equal(a.begin(), a.end(), b.begin(), b.end()); }

// The frames of `bytes`, held against everything that a scan promises.
std::vector<Extent> scanned(Bytes bytes, uint64_t remaining) {
  std::vector<Extent> payloads;
  const Scan result = scan(bytes, remaining, payloads);
  size_t at = 0;
  for (const Extent& payload : payloads) {
    require(payload.offset == at + kHeaderBytes);
    require(payload.offset <= bytes.size() && payload.length <= bytes.size() - payload.offset);
    const Bytes body = bytes.subspan(payload.offset, payload.length);
    std::vector<std::byte> frame(body.size() + kFramingBytes);
    write_frame(frame.data(), body);
    require(frame.size() <= bytes.size() - at && same(frame, bytes.subspan(at, frame.size())));
    at += frame.size();
  }
  require(result.consumed == at);
  if (result.problem) {
    require(result.problem.at == at);
  } else if (result.needed != 0) {
    require(result.needed > bytes.size() - at);
    require(result.needed <= std::max<uint64_t>(remaining - at, kHeaderBytes));
  } else {
    require(at == bytes.size() && at == remaining);
  }
  return payloads;
}

bool is_frame(Bytes bytes, size_t at) {
  if (bytes.size() - at < kFramingBytes || !header_agrees(bytes.data() + at)) return false;
  std::vector<Extent> payloads;
  scan(bytes.subspan(at), bytes.size() - at, payloads);
  return !payloads.empty();
}

// A search passes over no frame, and always gets somewhere.
void search(Bytes bytes, size_t from, uint64_t remaining) {
  const Resync result = find_frame(bytes, from, remaining);
  require(result.offset >= from && result.offset <= bytes.size());
  for (size_t at = from; at < result.offset; ++at) require(!is_frame(bytes, at));
  if (result.found)
    require(is_frame(bytes, result.offset));
  else
    require(result.needed > bytes.size() - result.offset);
}

// A file of payloads cut from the bytes, each as long as the byte at its start says.
std::vector<std::byte> file_of(Bytes bytes) {
  std::vector<std::byte> file;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = std::min(std::to_integer<size_t>(bytes[at]) % 64, bytes.size() - at);
    const size_t begin = file.size();
    file.resize(begin + length + kFramingBytes);
    write_frame(file.data() + begin, bytes.subspan(at, length));
    at += std::max<size_t>(length, 1);
  }
  return file;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  scanned(bytes, size);
  scanned(bytes, size + 100);
  scanned(bytes, uint64_t{1} << 62);
  search(bytes, 0, size);
  search(bytes, size / 2, size + 100);
  if (size < 2) return 0;

  // The last two bytes choose what is done to the file; a fifth of the bytes are enough for it.
  const size_t choice =
      std::to_integer<size_t>(bytes[size - 2]) << 8 | std::to_integer<size_t>(bytes[size - 1]);
  const Bytes contents = bytes.first(std::min<size_t>(size - 2, 512));
  std::vector<std::byte> file = file_of(contents);
  const std::vector<Extent> all = scanned(file, file.size());
  if (file.empty()) return 0;
  const size_t at = choice * 7919 % file.size();

  const std::vector<Extent> before = scanned(Bytes(file).first(at), file.size());
  require(before.size() <= all.size());

  file[at] ^= bytes[0] == std::byte{0} ? std::byte{1} : bytes[0];
  const std::vector<Extent> damaged = scanned(file, file.size());
  // Every frame before the change is there, and the changed one is not.
  require(damaged.size() < all.size());
  const size_t begin = damaged.empty() ? 0 : damaged.back().offset + damaged.back().length + 4;
  const Extent& lost = all[damaged.size()];
  require(begin <= at && at < lost.offset + lost.length + 4);
  search(file, begin + 1, file.size());
  return 0;
}

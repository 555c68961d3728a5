// A TFRecord file is a plain sequence of frames: no header, no footer, no count.
//
//     0        8     12           12+L    16+L
//     | length | crc | payload L… | crc   |
//
// The length has its own checksum, so that a reader can trust it before it
// allocates, and can find the next frame after damage by searching for twelve
// bytes that agree with each other. All numbers are little-endian; checksums are
// CRC-32C, masked (crc32c.h) because a file may hold checksums of checksums.
#pragma once

#include <vector>

#include "bytes.h"
#include "fault.h"

namespace rekord {

inline constexpr size_t kHeaderBytes = 12;
inline constexpr size_t kFooterBytes = 4;
inline constexpr size_t kFramingBytes = kHeaderBytes + kFooterBytes;

// Where a payload is in the scanned bytes. Its frame begins kHeaderBytes before.
struct Extent {
  uint64_t offset;
  uint64_t length;
};

// The result of reading at a position where a frame should begin.
struct FrameProbe {
  Bytes payload;  // of a complete frame, if there is one
  bool whole = false;
  uint64_t needed = 0;  // bytes of the frame, as far as proven; 0: nothing is left
  Problem problem;      // why it cannot be read at all
};

// The frame at `at`, payload not verified yet. `remaining` is the maximum number of bytes in the
// stream, counted from the front of `bytes`: a length beyond it is refused immediately, and once
// `bytes` holds all of them an unfinished frame is a truncated one.
FrameProbe probe_header(Bytes bytes, size_t at, uint64_t remaining) noexcept;
// The same with its payload verified.
FrameProbe probe_frame(Bytes bytes, size_t at, uint64_t remaining) noexcept;

// Frames at the front of `bytes`, counted by their headers alone.
struct SkippedFrames {
  size_t consumed = 0;
  size_t frames = 0;
  uint64_t needed = 0;  // as in FrameProbe, of the frame that comes next
  Problem problem;
};

// Skips at most `most` complete frames. Payloads are verified later,
// perhaps on another thread.
SkippedFrames skip_frames(Bytes bytes, uint64_t remaining, size_t most) noexcept;

// The result of a scan.
struct Scan {
  size_t consumed = 0;  // bytes of complete, verified frames at the front
  uint64_t needed = 0;  // bytes of the frame that begins there, as far as proven; 0: done
  Problem problem;      // why the frame at `consumed` cannot be read at all
};

// Verifies both checksums of each frame at the front of `bytes` and records where
// its payload is.
Scan scan(Bytes bytes, uint64_t remaining, std::vector<Extent>& payloads);

// A position where reading can resume after damage.
struct Resync {
  size_t offset = 0;  // of a frame, or of the first byte that has not been ruled out
  bool found = false;
  uint64_t needed = 0;  // if not found: bytes from `offset` on that would settle it
  uint64_t spent = 0;   // bytes of payloads that were verified in vain
};

// The first frame at or after `from` with *two* valid checksums. A length
// checksum alone matches by chance once in four billion bytes, so a second one is
// hardly ever computed in vain; a file full of valid headers could still
// make the search quadratic, which is why a candidate longer than the rest of
// `budget` is skipped.
Resync find_frame(Bytes bytes, size_t from, uint64_t remaining,
                  uint64_t budget = ~uint64_t{0}) noexcept;

// True if twelve bytes could begin a frame: the length matches its checksum.
bool header_agrees(const std::byte* header) noexcept;

// Writes the frame of `payload` to `out`, which has room for it (kFramingBytes more).
void write_frame(std::byte* out, Bytes payload) noexcept;

}  // namespace rekord

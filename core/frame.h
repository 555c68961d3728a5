// A TFRecord file is a plain run of frames: no header, no footer, no count.
//
//     0        8     12           12+L    16+L
//     | length | crc | payload L… | crc   |
//
// The length has a checksum of its own, so that a reader can trust it before it
// allocates, and can find the next frame after damage by looking for twelve
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

// Where a payload lies in the scanned bytes. Its frame begins kHeaderBytes before.
struct Extent {
  uint64_t offset;
  uint64_t length;
};

// One look at a place where a frame should begin.
struct FrameProbe {
  Bytes payload;  // of a whole frame, where there is one
  bool whole = false;
  uint64_t needed = 0;  // bytes of the frame, as far as proven; 0: nothing is left
  Problem problem;      // why it cannot be read at all
};

// The frame at `at`, its payload not verified yet. `remaining` is how many bytes the stream has at
// the most, counted from the front of `bytes`: a length beyond it is refused at once, and once
// `bytes` holds all of them an unfinished frame is a cut one.
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

// Hops over at most `most` whole frames. Payloads are left for someone else to
// verify, perhaps on another thread.
SkippedFrames skip_frames(Bytes bytes, uint64_t remaining, size_t most) noexcept;

// What a scan came to.
struct Scan {
  size_t consumed = 0;  // bytes of whole, verified frames at the front
  uint64_t needed = 0;  // bytes of the frame that begins there, as far as proven; 0: done
  Problem problem;      // why the frame at `consumed` cannot be read at all
};

// Verifies both checksums of each frame at the front of `bytes` and notes where
// its payload lies.
Scan scan(Bytes bytes, uint64_t remaining, std::vector<Extent>& payloads);

// A place where reading can go on after damage.
struct Resync {
  size_t offset = 0;  // of a frame, or of the first byte that has not been ruled out
  bool found = false;
  uint64_t needed = 0;  // where not found: bytes from `offset` on that would settle it
  uint64_t spent = 0;   // bytes of payloads that were verified in vain
};

// The first frame at or after `from` of which *both* checksums agree. A length
// checksum alone agrees by chance once in four billion bytes, so a second one is
// hardly ever computed in vain; a file that is made of agreeing headers could still
// make the search quadratic, which is why a candidate longer than what is left of
// `budget` is passed over.
Resync find_frame(Bytes bytes, size_t from, uint64_t remaining,
                  uint64_t budget = ~uint64_t{0}) noexcept;

// True where twelve bytes could begin a frame: the length agrees with its checksum.
bool header_agrees(const std::byte* header) noexcept;

// Writes the frame of `payload` to `out`, which has room for it (kFramingBytes more).
void write_frame(std::byte* out, Bytes payload) noexcept;

}  // namespace rekord

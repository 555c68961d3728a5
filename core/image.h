// The properties of an encoded image, without decoding a pixel.
//
// Every format begins with its own signature, and its size follows soon after:
//
//     JPEG   ff d8 | ff marker, length, content | … | ff da scan … | ff d9
//     PNG    89 50 4e 47 0d 0a 1a 0a | length, name, content, crc | … | IEND
//     GIF    47 49 46 38 | screen | blocks | 3b
//     BMP    42 4d | length | … | header | rows
//     WebP   52 49 46 46 | length | 57 45 42 50 | name, length, content | …
//     TIFF   49 49 2a 00 or 4d 4d 00 2a: recognised, but not inspected
//
// Whether an image is complete is known only after a walk to its end: markers, chunks,
// blocks. That walk reads each byte at most once, and allocates nothing.
#pragma once

#include <vector>

#include "bytes.h"

namespace rekord {

enum class ImageFormat : uint8_t { none, jpeg, png, gif, bmp, webp, tiff };

enum class Colour : uint8_t { unknown, grey, grey_alpha, rgb, rgba, palette, cmyk, ycck };

// `at` is the offset of the byte, marker, chunk or block at fault.
enum class ImageFault : uint8_t {
  none = 0,
  empty,            // no byte at all
  not_an_image,     // of no known format
  cut,              // it is truncated. expected: the bytes needed there at least; found: those left
  crc,              // PNG. expected: the stored checksum; found: the computed one
  bad_marker,       // JPEG, GIF, BMP, WebP: not valid there. found: the byte there
  bad_chunk,        // PNG: an invalid or misplaced chunk. found: its name, big-endian
  zero_size,        // a width or height of 0
  impossible_size,  // more pixels than the bytes can hold
};

struct ImageFacts {
  ImageFormat format = ImageFormat::none;
  Colour colour = Colour::unknown;
  uint32_t width = 0;
  uint32_t height = 0;
  uint8_t channels = 0;     // of the pixels after decoding; a palette has 3
  uint8_t bits = 0;         // of one sample; of one index if there is a palette
  uint8_t orientation = 0;  // EXIF's, 1 to 8; 0: unknown
  bool interlaced = false;  // or progressive
  uint64_t end = 0;         // where the image ends, once that is known: bytes may follow
  ImageFault fault = ImageFault::none;
  uint64_t at = 0;
  uint64_t expected = 0;
  uint64_t found = 0;
};

// With `structure` the image is walked to its end; without, only as far as its size.
ImageFacts inspect_image(Bytes data, bool structure) noexcept;

// Where a chunk's content is. Name and length are the 8 bytes before, the checksum
// the 4 after.
struct PngChunk {
  uint32_t name;  // big-endian: 0x49444154 is IDAT
  uint64_t begin;
  uint64_t end;
};

// The chunks of a PNG that was inspected with `structure`, and had no fault.
std::vector<PngChunk> png_chunks(Bytes data);

// CRC-32 as PNG and gzip use it (reflected 0xEDB88320), continued from `crc`.
uint32_t crc32(Bytes data, uint32_t crc = 0) noexcept;

}  // namespace rekord

#include "image.h"

#include <array>
#include <cstring>

namespace rekord {
namespace {

// ---- Numbers ---------------------------------------------------------------------------

inline uint8_t u8(const std::byte* from) noexcept { return std::to_integer<uint8_t>(*from); }

inline uint32_t be16(const std::byte* from) noexcept {
  return uint32_t{u8(from)} << 8 | u8(from + 1);
}

inline uint32_t be32(const std::byte* from) noexcept { return be16(from) << 16 | be16(from + 2); }

inline uint32_t le16(const std::byte* from) noexcept { return load_le<uint16_t>(from); }
inline uint32_t le24(const std::byte* from) noexcept {
  return le16(from) | uint32_t{u8(from + 2)} << 16;
}
inline uint32_t le32(const std::byte* from) noexcept { return load_le<uint32_t>(from); }

constexpr uint32_t name_of(const char (&text)[5]) noexcept {
  uint32_t name = 0;
  for (size_t i = 0; i < 4; ++i) name = name << 8 | static_cast<uint8_t>(text[i]);
  return name;
}

bool begins(Bytes data, size_t at, std::string_view with) noexcept {
  return data.size() >= at + with.size() && as_text(data.subspan(at, with.size())) == with;
}

// ---- CRC-32, slicing by eight ------------------------------------------------------------

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables make_tables() {
  Tables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t state = byte;
    for (int bit = 0; bit < 8; ++bit) state = (state >> 1) ^ (0xEDB88320u & (0u - (state & 1u)));
    tables[0][byte] = state;
  }
  for (size_t zeros = 1; zeros < 8; ++zeros)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[zeros - 1][byte];
      tables[zeros][byte] = (shorter >> 8) ^ tables[0][shorter & 0xFF];
    }
  return tables;
}

constexpr Tables kTables = make_tables();

// ---- What all walks share ----------------------------------------------------------------

struct Walk {
  Bytes data;
  ImageFacts& facts;

  size_t size() const noexcept { return data.size(); }
  const std::byte* at(size_t offset) const noexcept { return data.data() + offset; }

  // Whether `count` bytes follow at `offset`, which is not past the end; a fault where not.
  bool holds(size_t offset, uint64_t count) const noexcept {
    const size_t left = data.size() - offset;
    if (count <= left) return true;
    return fail(ImageFault::cut, offset, count, left);
  }

  bool fail(ImageFault fault, size_t offset, uint64_t expected = 0,
            uint64_t found = 0) const noexcept {
    facts.fault = fault;
    facts.at = offset;
    facts.expected = expected;
    facts.found = found;
    return false;
  }

  bool bad_byte(size_t offset) const noexcept {
    return fail(ImageFault::bad_marker, offset, 0, u8(at(offset)));
  }

  // Takes over the size where it is one.
  bool sized(size_t offset, uint32_t width, uint32_t height) const noexcept {
    facts.width = width;
    facts.height = height;
    return width > 0 && height > 0 ? true : fail(ImageFault::zero_size, offset);
  }

  void pixels(Colour colour, uint8_t channels, uint8_t bits) const noexcept {
    facts.colour = colour;
    facts.channels = channels;
    facts.bits = bits;
  }
};

// The orientation in an EXIF block: a small TIFF file, of which the first folder is read.
uint8_t orientation_of(Bytes exif) noexcept {
  if (exif.size() < 8) return 0;
  const bool little = begins(exif, 0, {"II*\0", 4});
  if (!little && !begins(exif, 0, {"MM\0*", 4})) return 0;
  const auto two = [&](size_t at) { return little ? le16(&exif[at]) : be16(&exif[at]); };
  const auto four = [&](size_t at) { return little ? le32(&exif[at]) : be32(&exif[at]); };
  const size_t folder = four(4);
  if (folder > exif.size() - 2) return 0;
  const size_t entries = two(folder);
  for (size_t i = 0; i < entries; ++i) {
    const size_t entry = folder + 2 + 12 * i;
    if (entry + 12 > exif.size()) return 0;
    if (two(entry) != 0x0112) continue;
    const uint32_t value = two(entry + 8);
    return two(entry + 2) == 3 && value >= 1 && value <= 8 ? static_cast<uint8_t>(value) : 0;
  }
  return 0;
}

// ---- JPEG ----------------------------------------------------------------------------------

constexpr uint8_t kSof0 = 0xC0, kHuffman = 0xC4, kReservedSof = 0xC8, kArithmetic = 0xCC,
                  kSof15 = 0xCF;
constexpr uint8_t kRestart0 = 0xD0, kRestart7 = 0xD7, kStart = 0xD8, kEnd = 0xD9, kScan = 0xDA;
constexpr uint8_t kApp1 = 0xE1, kApp14 = 0xEE, kTemporary = 0x01;

// From `offset` on to the next ff with a code behind it. Decoders skip what lies between,
// and so do we; ff may be repeated, and ff 00 is a byte of pixels.
size_t next_marker(Bytes data, size_t offset, bool in_scan) noexcept {
  while (offset < data.size()) {
    const void* hit = std::memchr(data.data() + offset, 0xFF, data.size() - offset);
    if (hit == nullptr) return data.size();
    offset = static_cast<size_t>(static_cast<const std::byte*>(hit) - data.data());
    if (offset + 1 >= data.size()) return data.size();
    const uint8_t code = u8(&data[offset + 1]);
    if (code == 0xFF) {
      ++offset;
    } else if (code == 0 || (in_scan && code >= kRestart0 && code <= kRestart7)) {
      offset += 2;
    } else {
      return offset;
    }
  }
  return data.size();
}

struct Jpeg : Walk {
  int adobe_transform = -1;
  bool framed = false;

  bool frame(size_t marker, size_t content, size_t length, uint8_t code) noexcept {
    if (framed || length < 6) return bad_byte(marker + 1);
    const uint8_t count = u8(at(content + 5));
    if (count == 0 || count > 4 || length < 6 + size_t{3} * count) return bad_byte(content + 5);
    framed = true;
    facts.interlaced = (code & 3) == 2;
    const Colour colour = count == 1   ? Colour::grey
                          : count == 3 ? Colour::rgb
                          : count == 4 ? (adobe_transform == 2 ? Colour::ycck : Colour::cmyk)
                                       : Colour::unknown;
    pixels(colour, count, u8(at(content)));
    return sized(content + 1, be16(at(content + 3)), be16(at(content + 1)));
  }

  void application(uint8_t code, Bytes content) noexcept {
    if (code == kApp1 && facts.orientation == 0 && begins(content, 0, {"Exif\0\0", 6}))
      facts.orientation = orientation_of(content.subspan(6));
    if (code == kApp14 && content.size() >= 12 && begins(content, 0, "Adobe"))
      adobe_transform = u8(&content[11]);
  }

  bool walk(bool structure) noexcept {
    bool scanned = false;
    size_t offset = 2;
    while (true) {
      const size_t marker = next_marker(data, offset, scanned);
      if (marker >= size()) return fail(ImageFault::cut, size(), 2, 0);
      const uint8_t code = u8(at(marker + 1));
      offset = marker + 2;
      if (code == kEnd) {
        if (!scanned) return bad_byte(marker + 1);
        facts.end = offset;
        return true;
      }
      if (code == kStart) return bad_byte(marker + 1);
      if (code == kTemporary || (code >= kRestart0 && code <= kRestart7)) continue;
      if (!holds(offset, 2)) return false;
      const size_t length = be16(at(offset));
      if (length < 2) return bad_byte(offset + 1);
      if (!holds(offset, length)) return false;
      const size_t content = offset + 2;
      offset += length;
      if (code >= kSof0 && code <= kSof15 && code != kHuffman && code != kReservedSof &&
          code != kArithmetic) {
        if (!frame(marker, content, length - 2, code)) return false;
        if (!structure) return true;
      } else if (code == kScan) {
        if (!framed) return bad_byte(marker + 1);
        scanned = true;
      } else {
        application(code, data.subspan(content, length - 2));
      }
    }
  }
};

// ---- PNG -----------------------------------------------------------------------------------

constexpr std::string_view kPngStart = "\x89PNG\r\n\x1a\n";
constexpr uint32_t kIhdr = name_of("IHDR"), kPlte = name_of("PLTE"), kIdat = name_of("IDAT"),
                   kIend = name_of("IEND"), kExif = name_of("eXIf");
constexpr size_t kMostChunkBytes = 0x7FFFFFFF;
// Deflate's best: a match of 258 bytes in two bits.
constexpr uint64_t kMostInflation = 1032;

bool is_name(uint32_t name) noexcept {
  for (int shift = 0; shift < 32; shift += 8) {
    const uint32_t letter = (name >> shift & 0xFF) | 0x20;
    if (letter < 'a' || letter > 'z') return false;
  }
  return true;
}

struct Png : Walk {
  bool header() noexcept {
    constexpr size_t kContent = 16;
    if (!holds(8, 25)) return false;
    const uint32_t name = be32(at(12));
    if (name != kIhdr || be32(at(8)) != 13) return fail(ImageFault::bad_chunk, 8, 0, name);
    if (!checked(8, 13)) return false;
    const uint8_t bits = u8(at(kContent + 8)), kind = u8(at(kContent + 9));
    struct Form {
      uint8_t kind;
      Colour colour;
      uint8_t channels, samples;
      uint32_t depths;  // a bit for each
    };
    constexpr Form forms[] = {{0, Colour::grey, 1, 1, 0x10116},
                              {2, Colour::rgb, 3, 3, 0x10100},
                              {3, Colour::palette, 3, 1, 0x00116},
                              {4, Colour::grey_alpha, 2, 2, 0x10100},
                              {6, Colour::rgba, 4, 4, 0x10100}};
    const Form* form = nullptr;
    for (const Form& one : forms)
      if (one.kind == kind && bits <= 16 && (one.depths >> bits & 1) != 0) form = &one;
    const uint8_t compression = u8(at(kContent + 10)), filter = u8(at(kContent + 11));
    const uint8_t interlace = u8(at(kContent + 12));
    if (form == nullptr || compression != 0 || filter != 0 || interlace > 1)
      return fail(ImageFault::bad_chunk, 8, 0, kIhdr);
    pixels(form->colour, form->channels, bits);
    facts.interlaced = interlace == 1;
    const uint32_t width = be32(at(kContent)), height = be32(at(kContent + 4));
    if (!sized(kContent, width, height)) return false;
    const uint64_t row_bytes = (uint64_t{width} * form->samples * bits + 7) / 8;
    const bool huge = width > kMostChunkBytes || height > kMostChunkBytes;
    if (huge || row_bytes > kMostInflation * size() / height)
      return fail(ImageFault::impossible_size, kContent, kMostInflation * size(), 0);
    return true;
  }

  bool checked(size_t chunk, size_t length) noexcept {
    const uint32_t stored = be32(at(chunk + 8 + length));
    const uint32_t computed = crc32(data.subspan(chunk + 4, 4 + length));
    return stored == computed ? true : fail(ImageFault::crc, chunk, stored, computed);
  }

  bool walk(bool structure) noexcept {
    if (!header()) return false;
    bool palette = false, pixels = false, left_pixels = false;
    for (size_t chunk = 33;;) {
      if (!holds(chunk, 12)) return false;
      const uint64_t length = be32(at(chunk));
      const uint32_t name = be32(at(chunk + 4));
      if (!structure && name == kIdat) return true;
      if (!is_name(name) || length > kMostChunkBytes)
        return fail(ImageFault::bad_chunk, chunk, 0, name);
      if (!holds(chunk, length + 12)) return false;
      if (structure && !checked(chunk, length)) return false;
      const bool critical = (name >> 24 & 0x20) == 0;
      if (pixels && name != kIdat) left_pixels = true;
      if (name == kIend) {
        if (!pixels) return fail(ImageFault::bad_chunk, chunk, 0, name);
        facts.end = chunk + 12;
        return true;
      }
      if (name == kIdat) {
        if (left_pixels || (facts.colour == Colour::palette && !palette))
          return fail(ImageFault::bad_chunk, chunk, 0, name);
        pixels = true;
      } else if (name == kPlte) {
        const bool fits = length > 0 && length <= 768 && length % 3 == 0;
        if (!fits || pixels || palette) return fail(ImageFault::bad_chunk, chunk, 0, name);
        palette = true;
      } else if (critical) {
        return fail(ImageFault::bad_chunk, chunk, 0, name);
      } else if (name == kExif) {
        facts.orientation = orientation_of(data.subspan(chunk + 8, length));
      }
      chunk += length + 12;
    }
  }
};

// ---- GIF -----------------------------------------------------------------------------------

struct Gif : Walk {
  static size_t table_bytes(uint8_t flags) noexcept {
    return (flags & 0x80) != 0 ? size_t{3} << ((flags & 7) + 1) : 0;
  }

  // Past a run of small blocks, each with its length in front, up to the empty one.
  bool skip_blocks(size_t& offset) const noexcept {
    while (true) {
      if (!holds(offset, 1)) return false;
      const size_t length = u8(at(offset));
      if (!holds(offset, length + 1)) return false;
      offset += length + 1;
      if (length == 0) return true;
    }
  }

  bool walk(bool structure) noexcept {
    if (!holds(6, 7)) return false;
    pixels(Colour::palette, 3, 8);
    if (!sized(6, le16(at(6)), le16(at(8)))) return false;
    if (!structure) return true;
    const size_t table = table_bytes(u8(at(10)));
    if (!holds(13, table)) return false;
    bool has_image = false;
    for (size_t offset = 13 + table;;) {
      // Decoders do without the last byte, and do not look at what follows an image.
      if (offset >= size() && has_image) {
        facts.end = offset;
        return true;
      }
      if (!holds(offset, 1)) return false;
      const uint8_t block = u8(at(offset));
      if (block == 0x21) {
        if (!holds(offset, 2)) return false;
        offset += 2;
        if (!skip_blocks(offset)) return false;
      } else if (block == 0x2C) {
        if (!holds(offset, 10)) return false;
        const uint8_t flags = u8(at(offset + 9));
        if (!has_image) facts.interlaced = (flags & 0x40) != 0;
        const uint64_t head = 10 + table_bytes(flags) + 1;
        if (!holds(offset, head)) return false;
        offset += head;
        if (!skip_blocks(offset)) return false;
        has_image = true;
      } else if (has_image) {
        facts.end = offset + (block == 0x3B ? 1 : 0);
        return true;
      } else {
        return bad_byte(offset);
      }
    }
  }
};

// ---- BMP -----------------------------------------------------------------------------------

bool is_bmp(Bytes data) noexcept {
  if (data.size() < 26 || !begins(data, 0, "BM")) return false;
  for (const uint32_t known : {12u, 16u, 40u, 52u, 56u, 64u, 108u, 124u})
    if (le32(&data[14]) == known) return true;
  return false;
}

struct Bmp : Walk {
  bool walk(bool structure) noexcept {
    const bool old = le32(at(14)) == 12;
    if (!old && !holds(14, 20)) return false;
    const uint32_t depth = le16(at(old ? 24 : 28));
    const uint32_t packing = old ? 0 : le32(at(30));
    const int64_t height =
        old ? int64_t{le16(at(20))} : int64_t{static_cast<int32_t>(le32(at(22)))};
    const int64_t width = old ? int64_t{le16(at(18))} : int64_t{static_cast<int32_t>(le32(at(18)))};
    const bool known = depth == 1 || depth == 2 || depth == 4 || depth == 8 || depth == 16 ||
                       depth == 24 || depth == 32;
    if (!known || width < 0) return bad_byte(known ? 18 : old ? 24 : 28);
    if (depth <= 8)
      pixels(Colour::palette, 3, static_cast<uint8_t>(depth));
    else
      pixels(depth == 32 ? Colour::rgba : Colour::rgb, depth == 32 ? 4 : 3, depth == 16 ? 5 : 8);
    // A negative height: the rows come from the top.
    const uint32_t rows = static_cast<uint32_t>(height < 0 ? -height : height);
    if (!sized(18, static_cast<uint32_t>(width), rows)) return false;
    if (!structure) return true;
    const size_t begin = le32(at(10));
    if (begin < 14 + size_t{le32(at(14))}) return bad_byte(10);
    if (begin > size()) return fail(ImageFault::cut, size(), begin - size(), 0);
    constexpr uint32_t kPlain = 0, kFields = 3;
    const uint64_t row_bytes = (uint64_t{facts.width} * depth + 31) / 32 * 4;
    const bool plain = packing == kPlain || packing == kFields;
    if (plain && row_bytes > (size() - begin) / rows) {
      // The product may be too large for a number: what is missing is then said as one row.
      const bool small = row_bytes <= ~uint64_t{0} / rows;
      return fail(ImageFault::cut, size(), small ? row_bytes * rows - (size() - begin) : row_bytes,
                  0);
    }
    facts.end = plain ? begin + row_bytes * rows : size();
    return true;
  }
};

// ---- WebP ----------------------------------------------------------------------------------

struct Webp : Walk {
  bool size_of(size_t chunk) noexcept {
    const std::byte* const content = at(chunk + 8);
    if (begins(data, chunk, "VP8 ")) {
      if (!holds(chunk, 18)) return false;
      pixels(Colour::rgb, 3, 8);
      if (be16(content + 3) != 0x9D01 || u8(content + 5) != 0x2A) return bad_byte(chunk + 11);
      return sized(chunk + 14, le16(content + 6) & 0x3FFF, le16(content + 8) & 0x3FFF);
    }
    if (begins(data, chunk, "VP8L")) {
      if (!holds(chunk, 13)) return false;
      if (u8(content) != 0x2F) return bad_byte(chunk + 8);
      const uint32_t packed = le32(content + 1);
      const bool alpha = (packed >> 28 & 1) != 0;
      pixels(alpha ? Colour::rgba : Colour::rgb, alpha ? 4 : 3, 8);
      return sized(chunk + 9, (packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1);
    }
    if (!begins(data, chunk, "VP8X")) return bad_byte(chunk);
    if (!holds(chunk, 18)) return false;
    const bool alpha = (u8(content) & 0x10) != 0;
    pixels(alpha ? Colour::rgba : Colour::rgb, alpha ? 4 : 3, 8);
    return sized(chunk + 12, le24(content + 4) + 1, le24(content + 7) + 1);
  }

  bool walk(bool structure) noexcept {
    if (!holds(12, 8) || !size_of(12)) return false;
    if (!structure) return true;
    const uint64_t end = uint64_t{le32(at(4))} + 8;
    if (end < 20) return bad_byte(4);
    if (end > size()) return fail(ImageFault::cut, size(), end - size(), 0);
    for (size_t chunk = 12; chunk + 8 <= end;) {
      const uint64_t length = le32(at(chunk + 4));
      if (length > end - chunk - 8) return bad_byte(chunk + 4);
      chunk += 8 + length + (length & 1);
    }
    facts.end = end;
    return true;
  }
};

}  // namespace

uint32_t crc32(Bytes data, uint32_t crc) noexcept {
  uint32_t state = ~crc;
  const std::byte* at = data.data();
  size_t count = data.size();
  for (; count >= 8; at += 8, count -= 8) {
    const uint64_t word = load_le<uint64_t>(at) ^ state;
    state = ((kTables[7][word & 0xFF] ^ kTables[6][word >> 8 & 0xFF]) ^
             (kTables[5][word >> 16 & 0xFF] ^ kTables[4][word >> 24 & 0xFF])) ^
            ((kTables[3][word >> 32 & 0xFF] ^ kTables[2][word >> 40 & 0xFF]) ^
             (kTables[1][word >> 48 & 0xFF] ^ kTables[0][word >> 56]));
  }
  for (; count > 0; ++at, --count) state = (state >> 8) ^ kTables[0][(state ^ u8(at)) & 0xFF];
  return ~state;
}

ImageFacts inspect_image(Bytes data, bool structure) noexcept {
  ImageFacts facts;
  const Walk walk{data, facts};
  if (data.empty()) {
    walk.fail(ImageFault::empty, 0);
  } else if (begins(data, 0, "\xff\xd8\xff")) {
    facts.format = ImageFormat::jpeg;
    Jpeg{walk}.walk(structure);
  } else if (begins(data, 0, kPngStart)) {
    facts.format = ImageFormat::png;
    Png{walk}.walk(structure);
  } else if (begins(data, 0, "GIF87a") || begins(data, 0, "GIF89a")) {
    facts.format = ImageFormat::gif;
    Gif{walk}.walk(structure);
  } else if (begins(data, 0, "RIFF") && begins(data, 8, "WEBP")) {
    facts.format = ImageFormat::webp;
    Webp{walk}.walk(structure);
  } else if (begins(data, 0, {"II*\0", 4}) || begins(data, 0, {"MM\0*", 4})) {
    facts.format = ImageFormat::tiff;
  } else if (is_bmp(data)) {
    facts.format = ImageFormat::bmp;
    Bmp{walk}.walk(structure);
  } else {
    walk.fail(ImageFault::not_an_image, 0);
  }
  return facts;
}

std::vector<PngChunk> png_chunks(Bytes data) {
  std::vector<PngChunk> chunks;
  for (size_t chunk = 8; chunk + 12 <= data.size();) {
    const uint64_t length = be32(&data[chunk]);
    const uint32_t name = be32(&data[chunk + 4]);
    if (length > data.size() - chunk - 12) break;
    chunks.push_back({name, chunk + 8, chunk + 8 + length});
    if (name == kIend) break;
    chunk += length + 12;
  }
  return chunks;
}

}  // namespace rekord

#include "image.h"

#include <string>

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;
using testing::text;

// ---- Images made by hand ---------------------------------------------------------------

Buffer number(uint32_t value) {
  Buffer bytes(4);
  for (int i = 0; i < 4; ++i)
    bytes[static_cast<size_t>(i)] = static_cast<std::byte>(value >> (24 - 8 * i));
  return bytes;
}

Buffer chunk(std::string_view name, const Buffer& content) {
  const Buffer named = join({text(name), content});
  return join({number(static_cast<uint32_t>(content.size())), named, number(crc32(named))});
}

const Buffer kPngStart = hex("89 50 4e 47 0d 0a 1a 0a");
const Buffer kGrey = hex("00 00 00 03 00 00 00 02 08 00 00 00 00");
const Buffer kPixels = chunk("IDAT", hex("78 9c 63 60 80 01 00 00 08 00 01"));
const Buffer kIend = chunk("IEND", {});

Buffer png(const Buffer& header, const Buffer& between = {}) {
  return join({kPngStart, chunk("IHDR", header), between, kPixels, kIend});
}

const Buffer kFrame = hex("ff c0 00 0b 08 00 02 00 03 01 01 11 00");
const Buffer kScan = hex("ff da 00 08 01 01 00 00 3f 00 | 12 34 ff 00 ff d0 56 | ff d9");

Buffer jpeg(const Buffer& before = {}, const Buffer& frame = kFrame) {
  return join({hex("ff d8"), before, frame, kScan});
}

Buffer gif() {
  return join({text("GIF89a"), hex("03 00 02 00 80 00 00 | 00*6 | 21 f9 04 00*4 00"),
               hex("2c 00*4 03 00 02 00 40 | 02 02 4c 01 00 | 3b")});
}

Buffer bmp() {
  return join({text("BM"), hex("46 00 00 00 | 00*4 | 36 00 00 00 | 28 00 00 00"),
               hex("03 00 00 00 | fe ff ff ff | 01 00 18 00 | 00*24 | 00*24")});
}

Buffer webp(const Buffer& content, std::string_view name = "VP8L") {
  const auto length = static_cast<uint8_t>(content.size());
  const Buffer size = {std::byte(length + 12), {}, {}, {}}, inner = {std::byte(length), {}, {}, {}};
  return join({text("RIFF"), size, text("WEBP"), text(name), inner, content});
}

const Buffer kLossless = hex("2f | 02 40 00 10 | 00");

ImageFacts look(const Buffer& data) { return inspect_image(data, true); }

// ---- What an image says -------------------------------------------------------------------

TEST("the checksum is that of PNG and gzip, in one piece and in several") {
  const Buffer digits = text("123456789");
  CHECK_EQ(crc32(digits), 0xCBF43926u);
  CHECK_EQ(crc32({}), 0u);
  for (size_t cut = 0; cut <= digits.size(); ++cut) {
    const Bytes all(digits);
    CHECK_EQ(crc32(all.subspan(cut), crc32(all.first(cut))), 0xCBF43926u);
  }
}

TEST("every format says its size, and is walked to its end") {
  struct Row {
    Buffer data;
    ImageFormat format;
    Colour colour;
    int channels, bits;
    bool interlaced;
  };
  const Row rows[] = {
      {jpeg(), ImageFormat::jpeg, Colour::grey, 1, 8, false},
      {jpeg({}, hex("ff c2 00 11 08 00 02 00 03 03 00*9")), ImageFormat::jpeg, Colour::rgb, 3, 8,
       true},
      {jpeg({}, hex("ff c0 00 14 08 00 02 00 03 04 00*12")), ImageFormat::jpeg, Colour::cmyk, 4, 8,
       false},
      {jpeg(join({hex("ff ee 00 0e"), text("Adobe"), hex("00*6 02")}),
            hex("ff c0 00 14 08 00 02 00 03 04 00*12")),
       ImageFormat::jpeg, Colour::ycck, 4, 8, false},
      {png(kGrey), ImageFormat::png, Colour::grey, 1, 8, false},
      {png(hex("00 00 00 03 00 00 00 02 10 00 00 00 01")), ImageFormat::png, Colour::grey, 1, 16,
       true},
      {png(hex("00 00 00 03 00 00 00 02 04 03 00 00 00"), chunk("PLTE", hex("00*6"))),
       ImageFormat::png, Colour::palette, 3, 4, false},
      {png(hex("00 00 00 03 00 00 00 02 08 06 00 00 00")), ImageFormat::png, Colour::rgba, 4, 8,
       false},
      {png(hex("00 00 00 03 00 00 00 02 08 04 00 00 00")), ImageFormat::png, Colour::grey_alpha, 2,
       8, false},
      {gif(), ImageFormat::gif, Colour::palette, 3, 8, true},
      {bmp(), ImageFormat::bmp, Colour::rgb, 3, 8, false},
      {webp(kLossless), ImageFormat::webp, Colour::rgba, 4, 8, false},
      {webp(hex("10 00 00 9d 01 2a 03 00 02 00"), "VP8 "), ImageFormat::webp, Colour::rgb, 3, 8,
       false},
      {webp(hex("10 00 00 00 02 00 00 01 00 00"), "VP8X"), ImageFormat::webp, Colour::rgba, 4, 8,
       false},
  };
  for (const Row& row : rows) {
    for (const bool structure : {false, true}) {
      const ImageFacts facts = inspect_image(row.data, structure);
      CHECK_EQ(facts.fault, ImageFault::none);
      CHECK_EQ(facts.format, row.format);
      CHECK_EQ(facts.colour, row.colour);
      CHECK_EQ(facts.channels, row.channels);
      CHECK_EQ(facts.bits, row.bits);
      CHECK_EQ(facts.width, 3u);
      CHECK_EQ(facts.height, 2u);
      CHECK_EQ(facts.end, structure ? row.data.size() : 0u);
      if (structure) CHECK_EQ(facts.interlaced, row.interlaced);
    }
  }
}

TEST("bytes after the end of an image are counted out") {
  for (const Buffer& whole : {jpeg(), png(kGrey), gif(), webp(kLossless)}) {
    const ImageFacts facts = look(join({whole, hex("de ad be ef")}));
    CHECK_EQ(facts.fault, ImageFault::none);
    CHECK_EQ(facts.end, whole.size());
  }
}

TEST("an image that is cut anywhere is never whole, and the place is in it") {
  for (const Buffer& whole : {jpeg(), png(kGrey), gif(), bmp(), webp(kLossless)}) {
    // A GIF lacks its last byte without harm.
    const size_t last = whole.size() - (whole[0] == std::byte{'G'} ? 1 : 0);
    for (size_t bytes = 0; bytes < last; ++bytes) {
      const ImageFacts facts = inspect_image(Bytes(whole).first(bytes), true);
      const bool fits = facts.fault == ImageFault::cut || facts.fault == ImageFault::not_an_image ||
                        facts.fault == ImageFault::empty ||
                        facts.fault == ImageFault::impossible_size;
      CHECK(fits);
      CHECK(facts.at <= bytes);
      if (facts.fault == ImageFault::cut) CHECK(facts.expected > facts.found);
    }
  }
}

TEST("any bit of a PNG that is flipped is noticed") {
  const Buffer whole = png(kGrey, chunk("tEXt", text("a\0b")));
  for (size_t at = 8; at < whole.size(); ++at)
    for (int bit = 0; bit < 8; ++bit) {
      Buffer other = whole;
      other[at] ^= std::byte(1 << bit);
      CHECK(look(other).fault != ImageFault::none);
    }
}

TEST("the orientation is read from JPEG and PNG, in both byte orders") {
  const Buffer little =
      hex("49 49 2a 00 08 00 00 00 | 02 00 | 00 01 03 00 01 00 00 00 05 00 00 00"
          "| 12 01 03 00 01 00 00 00 06 00 00 00");
  const Buffer big = hex("4d 4d 00 2a 00 00 00 08 | 00 01 | 01 12 00 03 00 00 00 01 00 08 00 00");
  for (const auto& [exif, expected] : {std::pair{little, 6}, std::pair{big, 8}}) {
    const Buffer segment = join({text("Exif"), hex("00 00"), exif});
    const Buffer length = {std::byte{0}, std::byte(segment.size() + 2)};
    CHECK_EQ(look(jpeg(join({hex("ff e1"), length, segment}))).orientation, expected);
    CHECK_EQ(look(png(kGrey, chunk("eXIf", exif))).orientation, expected);
    CHECK_EQ(inspect_image(png(kGrey, chunk("eXIf", exif)), false).orientation, expected);
    for (size_t bytes = 0; bytes < exif.size(); ++bytes) {
      const Buffer part(exif.begin(), exif.begin() + static_cast<std::ptrdiff_t>(bytes));
      CHECK_EQ(look(png(kGrey, chunk("eXIf", part))).orientation, 0);
    }
  }
  CHECK_EQ(look(jpeg()).orientation, 0);
}

TEST("markers of a JPEG may be padded, and what lies between them is passed over") {
  CHECK_EQ(look(jpeg(hex("ff ff ff fe 00 04 61 62"))).fault, ImageFault::none);
  CHECK_EQ(look(jpeg(hex("ff fe 00 02 00 00 01"))).fault, ImageFault::none);
  CHECK_EQ(look(jpeg(hex("ff 01 ff d3"))).fault, ImageFault::none);
}

TEST("a JPEG that contradicts itself says at which byte") {
  struct Row {
    Buffer data;
    ImageFault fault;
    size_t at;
  };
  const Row rows[] = {
      {hex("ff d8 ff d9"), ImageFault::bad_marker, 3},           // ends before its scan
      {join({hex("ff d8"), kScan}), ImageFault::bad_marker, 3},  // a scan of no frame
      {jpeg(kFrame), ImageFault::bad_marker, 16},                // two frames
      {jpeg(hex("ff d8")), ImageFault::bad_marker, 3},           // begins twice
      {jpeg(hex("ff fe 00 01")), ImageFault::bad_marker, 5},     // shorter than its own length
      {jpeg({}, hex("ff c0 00 08 08 00 02 00 03 01")), ImageFault::bad_marker, 11},
      {jpeg({}, hex("ff c0 00 0b 08 00 00 00 03 01 01 11 00")), ImageFault::zero_size, 7},
      {hex("ff d8 ff fe 00 09 00"), ImageFault::cut, 4},
      {join({hex("ff d8"), kFrame}), ImageFault::cut, 15},
      {join({hex("ff d8"), kFrame, hex("ff da 00 08 01 01 00 00 3f 00 | 00*50 ff")}),
       ImageFault::cut, 76},
  };
  for (const Row& row : rows) {
    const ImageFacts facts = look(row.data);
    CHECK_EQ(facts.fault, row.fault);
    CHECK_EQ(facts.at, row.at);
  }
}

TEST("a PNG that contradicts itself says at which chunk") {
  const Buffer palette = hex("00 00 00 03 00 00 00 02 08 03 00 00 00");
  struct Row {
    Buffer data;
    ImageFault fault;
    size_t at;
  };
  const Row rows[] = {
      {join({kPngStart, kPixels, kIend}), ImageFault::bad_chunk, 8},
      {join({kPngStart, chunk("IHDR", kGrey), kIend}), ImageFault::bad_chunk, 33},
      {png(palette), ImageFault::bad_chunk, 33},  // no palette
      {png(palette, chunk("PLTE", hex("00*4"))), ImageFault::bad_chunk, 33},
      {png(kGrey, chunk("CgBI", hex("00"))), ImageFault::bad_chunk, 33},
      {png(kGrey, chunk("a-Zz", {})), ImageFault::bad_chunk, 33},
      {png(kGrey, join({kPixels, chunk("tEXt", {})})), ImageFault::bad_chunk,
       33 + kPixels.size() + 12},
      {png(hex("00 00 00 03 00 00 00 02 03 00 00 00 00")), ImageFault::bad_chunk, 8},
      {png(hex("00 00 00 03 00 00 00 02 04 02 00 00 00")), ImageFault::bad_chunk, 8},
      {png(hex("00 00 00 03 00 00 00 02 08 00 00 00 02")), ImageFault::bad_chunk, 8},
      {png(hex("00 00 00 00 00 00 00 02 08 00 00 00 00")), ImageFault::zero_size, 16},
      {png(hex("00 10 00 00 00 10 00 00 08 00 00 00 00")), ImageFault::impossible_size, 16},
      {png(hex("7f ff ff ff 7f ff ff ff 10 06 00 00 00")), ImageFault::impossible_size, 16},
      {png(hex("ff ff ff ff 00 00 00 01 01 00 00 00 00")), ImageFault::impossible_size, 16},
      {join({kPngStart, chunk("IHDR", kGrey), hex("7f ff ff f0"), text("IDAT"), hex("00*20")}),
       ImageFault::cut, 33},
  };
  for (const Row& row : rows) {
    const ImageFacts facts = look(row.data);
    CHECK_EQ(facts.fault, row.fault);
    CHECK_EQ(facts.at, row.at);
  }
}

TEST("a checksum that does not match gives both") {
  Buffer data = png(kGrey);
  const size_t at = 33 + 8 + 2;
  data[at] ^= std::byte{1};
  const ImageFacts facts = look(data);
  CHECK_EQ(facts.fault, ImageFault::crc);
  CHECK_EQ(facts.at, 33u);
  CHECK(facts.expected != facts.found);
  CHECK_EQ(facts.expected, crc32(join({text("IDAT"), hex("78 9c 63 60 80 01 00 00 08 00 01")})));
  CHECK_EQ(inspect_image(data, false).fault, ImageFault::none);
}

TEST("sizes that bytes cannot have are refused in BMP and WebP too") {
  Buffer wide = bmp();
  wide[21] = std::byte{0x7f};
  CHECK_EQ(look(wide).fault, ImageFault::cut);
  wide[21] = std::byte{0x80};
  CHECK_EQ(look(wide).fault, ImageFault::bad_marker);
  Buffer flat = bmp();
  for (size_t i = 22; i < 26; ++i) flat[i] = std::byte{0};
  CHECK_EQ(look(flat).fault, ImageFault::zero_size);
  Buffer tall = bmp();
  for (size_t i = 22; i < 25; ++i) tall[i] = std::byte{0};
  tall[25] = std::byte{0x80};
  CHECK_EQ(look(tall).fault, ImageFault::cut);
  CHECK_EQ(look(tall).height, 0x80000000u);
  Buffer cut = webp(kLossless);
  cut[4] = std::byte{200};
  CHECK_EQ(look(cut).fault, ImageFault::cut);
  CHECK_EQ(look(webp(kLossless, "JUNK")).fault, ImageFault::bad_marker);
}

TEST("what is no image is none") {
  CHECK_EQ(look({}).fault, ImageFault::empty);
  for (const Buffer& data :
       {text("hello"), text("BM is a company"), text("GIF"), hex("ff d8"), hex("00*100"),
        join({text("BM"), hex("00*100")}), text("RIFF....WAVE")})
    CHECK_EQ(look(data).fault, ImageFault::not_an_image);
  CHECK_EQ(look(hex("49 49 2a 00 08 00 00 00")).format, ImageFormat::tiff);
  CHECK_EQ(look(hex("4d 4d 00 2a")).format, ImageFormat::tiff);
}

TEST("the chunks of a PNG are where they are") {
  const Buffer data = png(kGrey, chunk("tEXt", text("ab")));
  const auto chunks = png_chunks(data);
  REQUIRE(chunks.size() == 4);
  CHECK_EQ(chunks[0].name, 0x49484452u);
  CHECK_EQ(chunks[0].begin, 16u);
  CHECK_EQ(chunks[1].begin, 41u);
  CHECK_EQ(chunks[1].end, 43u);
  CHECK_EQ(chunks[3].end + 4, data.size());
  CHECK_EQ(png_chunks(hex("89 50 4e 47 0d 0a 1a 0a ff ff ff ff 00*30")).size(), 0u);
}

}  // namespace
}  // namespace rekord

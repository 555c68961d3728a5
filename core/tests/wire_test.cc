#include "wire.h"

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;

TEST("varints of one to ten bytes have their values") {
  struct Row {
    const char* bytes;
    uint64_t value;
  };
  const Row rows[] = {
      {"00", 0},
      {"7f", 127},
      {"80 01", 128},
      {"ac 02", 300},
      {"ff*8 7f", ~uint64_t{0} >> 1},
      {"80*9 01", uint64_t{1} << 63},
      {"ff*9 01", ~uint64_t{0}},
      // Longer than needed, and bits above the 64th: protobuf takes both.
      {"85 80 00", 5},
      {"85 80*8 00", 5},
      {"ff*9 7f", ~uint64_t{0}},
      {"80*9 7e", 0},
  };
  for (const auto& [bytes, value] : rows) {
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    uint64_t out = 0;
    CHECK(!reader.varint(out));
    CHECK_EQ(out, value);
    CHECK(reader.done());
  }
}

TEST("a varint without an end is a fault where it begins, and nothing is read") {
  for (const char* bytes : {"", "80", "ff*9", "ff*10", "ff*10 00"}) {
    const Buffer input = join({hex("00"), hex(bytes)});
    Reader reader(input, input.data());
    uint64_t out = 0;
    CHECK(!reader.varint(out));
    const Problem problem = reader.varint(out);
    CHECK_EQ(problem.fault, Fault::varint);
    CHECK_EQ(problem.at, 1u);
    CHECK_EQ(reader.offset(), 1u);
  }
}

TEST("a tag is a field, a wire type, and whether it is longer than it must be") {
  struct Row {
    const char* bytes;
    uint32_t field;
    Wire wire;
    bool padded;
  };
  const Row rows[] = {
      {"08", 1, Wire::varint, false},
      {"0a", 1, Wire::len, false},
      {"1d", 3, Wire::i32, false},
      {"80 01", 16, Wire::varint, false},
      {"f9 ff ff ff 0f", 0x1fffffff, Wire::i64, false},
      {"8a 00", 1, Wire::len, true},
      {"8a 80 80 80 00", 1, Wire::len, true},
  };
  for (const auto& [bytes, field, wire, padded] : rows) {
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    Tag tag{};
    CHECK(!reader.tag(tag));
    CHECK_EQ(tag.field, field);
    CHECK_EQ(tag.wire, wire);
    CHECK_EQ(tag.padded, padded);
    CHECK(reader.done());
  }
}

TEST("tags that protobuf refuses are refused with what was found") {
  struct Row {
    const char* bytes;
    Fault fault;
    uint64_t found;
  };
  const Row rows[] = {
      {"00", Fault::tag, 0},
      {"02", Fault::tag, 2},   // field 0
      {"0e", Fault::tag, 14},  // wire type 6
      {"0f", Fault::tag, 15},
      {"88 80 80 80 10", Fault::tag, (uint64_t{1} << 32) + 8},  // above 32 bits
      {"8a 80 80 80 80 00", Fault::varint, 0},                  // six bytes
      {"8a", Fault::varint, 0},
      {"", Fault::varint, 0},
  };
  for (const auto& [bytes, fault, found] : rows) {
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    Tag tag{};
    const Problem problem = reader.tag(tag);
    CHECK_EQ(problem.fault, fault);
    CHECK_EQ(problem.at, 0u);
    CHECK_EQ(problem.found, found);
  }
}

TEST("bytes are as many as their length says, or a fault") {
  const Buffer input = hex("03 61 62 63 | 00 | 81 00 64 | 02 65");
  Reader reader(input, input.data());
  Bytes out;
  CHECK(!reader.bytes(out));
  CHECK_EQ(as_text(out), "abc");
  CHECK(!reader.bytes(out));
  CHECK(out.empty());
  CHECK(!reader.bytes(out));
  CHECK_EQ(as_text(out), "d");
  const Problem problem = reader.bytes(out);
  CHECK_EQ(problem.fault, Fault::length);
  CHECK_EQ(problem.at, 8u);
  CHECK_EQ(problem.expected, 1u);
  CHECK_EQ(problem.found, 2u);
}

TEST("a length of four gigabytes is refused without being believed") {
  for (const char* bytes : {"ff ff ff ff 0f", "ff ff ff ff 7f"}) {
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    Bytes out;
    CHECK_EQ(reader.bytes(out).fault, Fault::length);
  }
}

TEST("every wire type is skipped by its own length") {
  for (const char* bytes : {"08 ac 02", "09 00*8", "0a 02 61 62", "0d 00*4", "0b 0c", "0b 10 05 0c",
                            "0b 13 14 1a 01 ff 25 00*4 29 00*8 0c", "0b 00 05 0c",
                            "0b 02 01 ff 03 04 0c"}) {  // field 0, inside a group only
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    Tag tag{};
    CHECK(!reader.tag(tag));
    CHECK(!reader.skip(tag));
    CHECK(reader.done());
  }
}

TEST("what cannot be skipped is a fault at its place") {
  struct Row {
    const char* bytes;
    Fault fault;
    uint64_t at;
    uint64_t expected;
    uint64_t found;
  };
  const Row rows[] = {
      {"08 80", Fault::varint, 1, 0, 0},        {"09 00*7", Fault::length, 1, 7, 8},
      {"0d 00*3", Fault::length, 1, 3, 4},      {"0a 03 61", Fault::length, 1, 1, 3},
      {"0c", Fault::group, 1, 0, 12},            // the end of no group
      {"0b", Fault::group, 1, 12, 0},            // no end
      {"0b 14", Fault::group, 2, 12, 20},        // the end of another
      {"0b 13 0c 14", Fault::group, 3, 20, 12},  // crossed
      {"0b 07", Fault::tag, 1, 0, 7},
  };
  for (const auto& [bytes, fault, at, expected, found] : rows) {
    const Buffer input = hex(bytes);
    Reader reader(input, input.data());
    Tag tag{};
    CHECK(!reader.tag(tag));
    const Problem problem = reader.skip(tag);
    CHECK_EQ(problem.fault, fault);
    CHECK_EQ(problem.at, at);
    CHECK_EQ(problem.expected, expected);
    CHECK_EQ(problem.found, found);
  }
}

TEST("groups nest a hundred deep, counted from the outermost message, and no deeper") {
  for (const int depth : {0, 3}) {
    for (const int levels : {1, 99 - depth, 100 - depth, 101 - depth, 100000}) {
      const size_t count = static_cast<size_t>(levels);
      const Buffer input = join({Buffer(count, std::byte{0x0b}), Buffer(count, std::byte{0x0c})});
      Reader reader(input, input.data(), depth);
      Tag tag{};
      CHECK(!reader.tag(tag));
      const Problem problem = reader.skip(tag);
      CHECK_EQ(problem.fault, levels + depth > kDeepest ? Fault::depth : Fault::none);
      if (problem) CHECK_EQ(problem.found, 100u);
    }
  }
}

TEST("UTF-8 is told from what only looks like it") {
  for (const char* good : {"", "00", "7f", "c2 80", "df bf", "e0 a0 80", "ed 9f bf", "ee 80 80",
                           "ef bf bf", "f0 90 80 80", "f4 8f bf bf", "61*8 c3 a9 61*7 e2 82 ac"})
    CHECK(is_utf8(hex(good)));
  for (const char* bad :
       {"80",          "bf",          "c0 80",       "c1 bf",      "c2",          "c2 41",
        "e0 9f bf",    "e0 80 80",    "ed a0 80",    "ed bf bf",   "e2 82",       "e2 82 41",
        "f0 8f bf bf", "f4 90 80 80", "f5 80 80 80", "f0 90 80",   "f0 90 80 41", "ff",
        "fe",          "61*8 80",     "61*7 c3",     "61*15 c3 28"})
    CHECK(!is_utf8(hex(bad)));
}

}  // namespace
}  // namespace rekord

#include "example.h"

#include <bit>
#include <string>

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;

// Writes down what a walk says, in the order in which it says it.
struct Notes {
  std::string text;

  void feature(std::string_view key, const FeatureView& view) {
    text += std::string(key) + '=' + values(view) + ' ';
  }
  void begin_steps(std::string_view key) { text += std::string(key) + "=( "; }
  void step(const FeatureView& view) { text += values(view) + ' '; }
  void end_steps() { text += ") "; }

  static std::string values(const FeatureView& view) {
    std::string out;
    switch (view.kind) {
      case Kind::unset:
        return "unset";
      case Kind::ints: {
        std::vector<int64_t> ints(view.count);
        CHECK_EQ(copy_ints(view, ints), view.count);
        for (const int64_t value : ints) out += std::to_string(value) + ',';
        return "i[" + out + ']';
      }
      case Kind::floats: {
        std::vector<float> floats(view.count);
        CHECK_EQ(copy_floats(view, floats), view.count);
        for (const float value : floats) {
          char bits[12];
          std::snprintf(bits, sizeof bits, "%08x,", std::bit_cast<uint32_t>(value));
          out += bits;
        }
        return "f[" + out + ']';
      }
      case Kind::bytes: {
        size_t count = 0;
        for_each_bytes(view, [&](Bytes value) {
          out += std::string(as_text(value)) + ',';
          ++count;
        });
        CHECK_EQ(count, view.count);
        return "b[" + out + ']';
      }
    }
    return "?";
  }
};

struct Read {
  std::string text;
  Problem problem;
  uint32_t oddities;
};

Read read_example(const Buffer& payload) {
  Scratch scratch;
  Notes notes;
  Walk<Notes> walk(payload, notes, scratch);
  const Problem problem = walk.example();
  return {notes.text, problem, walk.oddities()};
}

Read read_sequence(const Buffer& payload) {
  Scratch scratch;
  Notes notes;
  Walk<Notes> walk(payload, notes, scratch);
  const Problem problem = walk.sequence();
  return {notes.text, problem, walk.oddities()};
}

// A LEN field around a body shorter than 128 bytes.
Buffer len(uint8_t field, const Buffer& body) {
  return join(
      {{static_cast<std::byte>(field << 3 | 2), static_cast<std::byte>(body.size())}, body});
}

// The Example of one feature, `a`.
Buffer example_of(const Buffer& feature) {
  return len(1, len(1, join({hex("0a 01 61"), len(2, feature)})));
}

TEST("the known Example has its two features") {
  const Read read =
      read_example(hex("0a 25 | 0a 14 0a 01 61 12 0f 1a 0d 0a 0b 05 ff*9 01 | 0a 0d 0a 01 62 12 08 "
                       "0a 06 0a 02 61 62 0a 00"));
  CHECK(!read.problem);
  CHECK_EQ(read.text, "a=i[5,-1,] b=b[ab,,] ");
  CHECK_EQ(read.oddities, 0u);
}

TEST("a payload of no bytes and one of empty Features are Examples without features") {
  CHECK_EQ(read_example({}).text, "");
  CHECK_EQ(read_example(hex("0a 00")).text, "");
  CHECK(!read_example(hex("0a 00")).problem);
}

TEST("one Feature is read with protobuf's meaning, and what TensorFlow sees otherwise is noted") {
  struct Row {
    const char* feature;
    const char* value;
    uint32_t oddities;
  };
  const Row rows[] = {
      {"", "unset", 0},
      {"0a 00", "b[]", 0},
      {"12 00", "f[]", 0},
      {"1a 00", "i[]", 0},
      {"1a 02 0a 00", "i[]", 0},
      {"1a 0d 0a 0b 05 ff*9 01", "i[5,-1,]", 0},
      {"1a 0d 08 05 08 ff*9 01", "i[5,-1,]", 0},
      {"1a 0c 0a 0a 80*9 01", "i[-9223372036854775808,]", 0},
      {"1a 0b 0a 09 ff*8 7f", "i[9223372036854775807,]", 0},
      {"1a 05 0a 03 85 80 00", "i[5,]", 0},
      {"12 0a 0a 08 0000003f 000000c0", "f[3f000000,c0000000,]", 0},
      {"12 0a 0d 0000003f 0d 000000c0", "f[3f000000,c0000000,]", 0},
      // Bits, not numbers: NaNs with payloads and minus zero.
      {"12 0e 0a 0c 0100a07f adde c0ff 00000080", "f[7fa00001,ffc0dead,80000000,]", 0},
      {"1a 06 0a 01 01 0a 01 02", "i[1,2,]", odd::split_list},
      {"1a 04 0a 00 0a 00", "i[]", odd::split_list},
      {"1a 05 0a 01 01 08 02", "i[1,2,]", odd::split_list},
      {"1a 05 08 01 0a 01 02", "i[1,2,]", odd::split_list},
      {"1a 03 0a 01 01 | 1a 03 0a 01 02", "i[1,2,]", odd::split_list},
      {"0a 03 0a 01 78 | 0a 03 0a 01 79", "b[x,y,]", odd::split_list},
      {"12 06 0a 04 0000003f | 1a 03 0a 01 02", "i[2,]", odd::two_kinds},
      {"1a 03 0a 01 02 | 12 00", "f[]", odd::two_kinds},
      // Back to the first kind: what the second cleared stays away.
      {"1a 03 0a 01 01 | 12 00 | 1a 03 0a 01 02", "i[2,]", odd::two_kinds},
      // Unknown fields of every wire type, before, between and after.
      {"48 ac 02 | 1a 03 0a 01 01", "i[1,]", odd::unknown_inner},
      {"1a 03 0a 01 01 | 49 00*8", "i[1,]", odd::unknown_inner},
      {"4a 02 61 62", "unset", odd::unknown_inner},
      {"4b 10 01 4c | 1a 03 0a 01 01", "i[1,]", odd::unknown_inner},
      {"18 05", "unset", odd::unknown_inner},  // a known field number of another type
      {"1a 07 0d 00*4 08 07", "i[7,]", odd::unknown_inner},
      {"12 07 08 01 0d 0000003f", "f[3f000000,]", odd::unknown_inner},
      {"0a 05 08 01 0a 01 78", "b[x,]", odd::unknown_inner},
      {"1a 05 0a 01 01 10 02", "i[1,]", odd::unknown_inner},
      // A tag in two bytes: protobuf does not care, TensorFlow does not know it.
      {"9a 00 03 0a 01 01", "i[1,]", odd::unknown_inner},
      {"1a 04 8a 00 01 01", "i[1,]", odd::unknown_inner},
  };
  for (const auto& [feature, value, oddities] : rows) {
    const Read read = read_example(example_of(hex(feature)));
    CHECK(!read.problem);
    CHECK_EQ(read.text, "a=" + std::string(value) + ' ');
    CHECK_EQ(read.oddities, oddities);
  }
}

TEST("map entries may be swapped, halved, doubled or padded with unknown fields") {
  struct Row {
    const char* entry;
    const char* text;
    uint32_t oddities;
  };
  const Row rows[] = {
      {"0a 01 61 12 00", "a=unset ", 0},
      {"12 00 0a 01 61", "a=unset ", odd::entry_swapped},
      {"0a 00 12 00", "=unset ", 0},
      {"", "=unset ", odd::entry_form},
      {"0a 01 61", "a=unset ", odd::entry_form},
      {"12 00", "=unset ", odd::entry_form},
      {"0a 01 61 0a 01 62", "b=unset ", odd::entry_swapped},
      {"0a 01 61 0a 01 62 12 00", "b=unset ", odd::entry_form},
      {"0a 01 61 12 05 1a 03 0a 01 01 12 05 1a 03 0a 01 02", "a=i[1,2,] ",
       odd::entry_form | odd::split_list},
      // Protobuf sets an entry with unknown fields aside as a whole.
      {"0a 01 61 12 00 18 05", "", odd::unknown_inner},
      {"0a 01 61 12 00 1b 1c", "", odd::unknown_inner},
      {"8a 00 01 61 12 00", "a=unset ", odd::unknown_inner},
  };
  for (const auto& [entry, text, oddities] : rows) {
    const Read read = read_example(len(1, len(1, hex(entry))));
    CHECK(!read.problem);
    CHECK_EQ(read.text, text);
    CHECK_EQ(read.oddities, oddities);
  }
}

TEST("messages that stand one after another are one message") {
  const Buffer a = example_of(hex("1a 03 0a 01 01")), b = example_of(hex("1a 03 0a 01 02"));
  const Read read = read_example(join({a, b}));
  // Both are told; that the last one counts is the sink's affair.
  CHECK_EQ(read.text, "a=i[1,] a=i[2,] ");
  CHECK_EQ(read.oddities, 0u);
}

TEST("unknown fields beside the features are harmless, but for groups and padded tags") {
  struct Row {
    const char* field;
    uint32_t oddities;
  };
  const Row rows[] =
      {
          {"48 01", odd::unknown_top},       {"49 00*8", odd::unknown_top},
          {"4a 00", odd::unknown_top},       {"4d 00*4", odd::unknown_top},
          {"12 02 ff ff", odd::unknown_top},  // field 2 is no field of an Example
          {"4b 4c", odd::unknown_inner},     {"8a 00 00", odd::unknown_inner},
  };
  for (const auto& [field, oddities] : rows) {
    const Read read = read_example(join({hex(field), example_of({})}));
    CHECK(!read.problem);
    CHECK_EQ(read.text, "a=unset ");
    CHECK_EQ(read.oddities, oddities);
  }
  CHECK_EQ(read_example(hex("0a 02 10 01")).oddities, odd::unknown_inner);
}

TEST("what protobuf refuses is a fault at its byte of the payload") {
  struct Row {
    const char* payload;
    Fault fault;
    uint64_t at;
    uint64_t expected;
    uint64_t found;
  };
  const Row rows[] = {
      {"0a", Fault::varint, 1, 0, 0},
      {"0a 05 0a 01", Fault::length, 1, 2, 5},
      {"0a 03 0a 05 61", Fault::length, 3, 1, 5},
      {"00", Fault::tag, 0, 0, 0},
      {"0f", Fault::tag, 0, 0, 15},
      {"0c", Fault::group, 1, 0, 12},
      {"0b", Fault::group, 1, 12, 0},
      {"0a 05 0a 03 0a 01 ff", Fault::key_utf8, 5, 0, 0},
      {"0a 09 0a 07 12 05 12 03 0a 01 00", Fault::packed_floats, 9, 4, 1},
      {"0a 09 0a 07 12 05 1a 03 0a 01 80", Fault::varint, 10, 0, 0},
      {"0a 13 0a 11 12 0f 1a 0d 0a 0b ff*10 01", Fault::varint, 10, 0, 0},
      {"0a 08 0a 06 12 04 1a 02 08 80", Fault::varint, 9, 0, 0},
      {"0a 09 0a 07 12 05 0a 03 0a 05 61", Fault::length, 9, 1, 5},
      // The first kind is refused although the second replaces it.
      {"0a 0d 0a 0b 12 09 12 03 0a 01 00 1a 02 08 01", Fault::packed_floats, 9, 4, 1},
  };
  for (const auto& [payload, fault, at, expected, found] : rows) {
    const Read read = read_example(hex(payload));
    CHECK_EQ(read.problem.fault, fault);
    CHECK_EQ(read.problem.at, at);
    CHECK_EQ(read.problem.expected, expected);
    CHECK_EQ(read.problem.found, found);
  }
}

TEST("a SequenceExample has a context and one Feature a step") {
  const Read read =
      read_sequence(hex("0a 0f 0a 0d 0a 01 63 12 08 12 06 0a 04 0000003f | 12 10 0a 0e 0a 01 73 12 "
                        "09 0a 05 1a 03 0a 01 07 0a 00"));
  CHECK(!read.problem);
  CHECK_EQ(read.text, "c=f[3f000000,] s=( i[7,] unset ) ");
  CHECK_EQ(read.oddities, 0u);
}

TEST("the steps of an entry with two values are joined, and unknown fields are passed over") {
  const Buffer step = len(1, hex("1a 03 0a 01 07"));
  const auto lists = [](const Buffer& body) {
    return len(2, len(1, join({hex("0a 01 73"), body})));
  };
  const Read twice = read_sequence(lists(join({len(2, step), len(2, step)})));
  CHECK_EQ(twice.text, "s=( i[7,] i[7,] ) ");
  CHECK_EQ(twice.oddities, odd::entry_form);
  const Read unknown = read_sequence(lists(len(2, join({hex("10 01"), step}))));
  CHECK_EQ(unknown.text, "s=( i[7,] ) ");
  CHECK_EQ(unknown.oddities, odd::unknown_inner);
  const Read aside = read_sequence(lists(join({len(2, step), hex("18 01")})));
  CHECK_EQ(aside.text, "");
  CHECK_EQ(aside.oddities, odd::unknown_inner);
  CHECK_EQ(read_sequence(hex("12 0b 0a 09 12 07 0a 05 1a 03 0a 01 80")).problem.at, 12u);
}

TEST("a copy never writes more than there is room for") {
  const Buffer payload = example_of(hex("1a 08 0a 02 01 02 08 03 0a 00"));
  struct Sink {
    void feature(std::string_view, const FeatureView& view) const {
      CHECK_EQ(view.count, 3u);
      for (size_t room = 0; room <= 5; ++room) {
        std::vector<int64_t> out(room);
        CHECK_EQ(copy_ints(view, out), std::min<size_t>(room, 3));
        for (size_t i = 0; i < std::min<size_t>(room, 3); ++i)
          CHECK_EQ(out[i], static_cast<int64_t>(i + 1));
      }
    }
  } sink;
  Scratch scratch;
  CHECK(!Walk<Sink>(payload, sink, scratch).example());
}

}  // namespace
}  // namespace rekord

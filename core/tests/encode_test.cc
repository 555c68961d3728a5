#include "encode.h"

#include <algorithm>

#include "crc32c.h"
#include "frame.h"
#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::framed;
using testing::hex;
using testing::join;
using testing::text;

SlotSpec slot(std::string key, Kind kind, bool ragged = true, Missing missing = Missing::refuse) {
  SlotSpec spec;
  spec.key = std::move(key);
  spec.kind = kind;
  spec.ragged = ragged;
  spec.missing = missing;
  return spec;
}

std::shared_ptr<Plan> plan_of(std::vector<SlotSpec> specs) {
  return std::make_shared<Plan>(std::move(specs));
}

// Values that live as long as the test, and their cells.
struct Row {
  std::vector<SlotValues> cells;

  Row& ints(const std::vector<int64_t>& values) {
    cells.push_back({values.data(), values.size(), true});
    return *this;
  }
  Row& floats(const std::vector<float>& values) {
    cells.push_back({values.data(), values.size(), true});
    return *this;
  }
  Row& strings(const std::vector<Bytes>& values) {
    cells.push_back({values.data(), values.size(), true});
    return *this;
  }
  Row& absent() {
    cells.emplace_back();
    return *this;
  }
};

struct Written {
  std::shared_ptr<Pool> pool = Pool::create(1 << 20, true);
  Growing<std::byte> out;

  Written() { out.start(*pool, 0); }
  Buffer bytes() const { return {out.data(), out.data() + out.size()}; }
};

Buffer example(const std::shared_ptr<Plan>& plan, const Row& row, bool with_frame = false) {
  RecordWriter writer(plan, nullptr);
  Written written;
  CHECK(writer.add(row.cells.data(), nullptr, with_frame, written.out, *written.pool));
  return written.bytes();
}

Bytes bytes_of(std::string_view characters) { return std::as_bytes(std::span(characters)); }

// Varints one byte at a time, to hold the fast way against.
Buffer slow_varint(uint64_t value) {
  Buffer bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<std::byte>(value | 0x80));
  bytes.push_back(static_cast<std::byte>(value));
  return bytes;
}

Buffer with_length(uint8_t tag, const Buffer& body) {
  return join({Buffer{std::byte{tag}}, slow_varint(body.size()), body});
}

Buffer slow_entry(std::string_view key, uint8_t kind, const Buffer& list) {
  return with_length(
      0x0a, join({with_length(0x0a, text(key)), with_length(0x12, with_length(kind, list))}));
}

TEST("the known Example is written as the known bytes, framed and not") {
  const auto plan = plan_of({slot("b", Kind::bytes), slot("a", Kind::ints)});
  const std::vector<Bytes> strings{bytes_of("ab"), bytes_of("")};
  const std::vector<int64_t> ints{5, -1};
  const Row row = Row().strings(strings).ints(ints);
  const Buffer payload =
      hex("0a 25 | 0a 14 0a 01 61 12 0f 1a 0d 0a 0b 05 ff*9 01 |"
          "0a 0d 0a 01 62 12 08 0a 06 0a 02 61 62 0a 00");
  CHECK_EQ(example(plan, row), payload);
  CHECK_EQ(example(plan, row, true),
           join({hex("27 00*7 bb e1 b1 46"), payload, hex("a7 f2 f7 d8")}));
}

TEST("an empty list has its kind and nothing in it, an absent one has no key") {
  const std::vector<int64_t> no_ints;
  const std::vector<float> no_floats;
  const std::vector<Bytes> no_strings;
  CHECK_EQ(example(plan_of({slot("e", Kind::ints)}), Row().ints(no_ints)),
           hex("0a 09 0a 07 0a 01 65 12 02 1a 00"));
  CHECK_EQ(example(plan_of({slot("e", Kind::floats)}), Row().floats(no_floats)),
           hex("0a 09 0a 07 0a 01 65 12 02 12 00"));
  CHECK_EQ(example(plan_of({slot("e", Kind::bytes)}), Row().strings(no_strings)),
           hex("0a 09 0a 07 0a 01 65 12 02 0a 00"));
  CHECK_EQ(example(plan_of({slot("e", Kind::bytes)}), Row().absent()), hex("0a 00"));
  CHECK_EQ(example(plan_of({}), Row()), hex("0a 00"));
}

TEST("one empty string is a value") {
  const std::vector<Bytes> one{bytes_of("")};
  CHECK_EQ(example(plan_of({slot("s", Kind::bytes, false)}), Row().strings(one)),
           hex("0a 0b 0a 09 0a 01 73 12 04 0a 02 0a 00"));
}

TEST("float bits are copied as they are, those of NaNs too") {
  const std::vector<float> values{std::bit_cast<float>(0x7fc00001u),
                                  std::bit_cast<float>(0xff800001u), -0.0f};
  CHECK_EQ(example(plan_of({slot("f", Kind::floats)}), Row().floats(values)),
           hex("0a 17 0a 15 0a 01 66 12 10 12 0e 0a 0c 01 00 c0 7f 01 00 80 ff 00 00 00 80"));
}

TEST("integers of every width are written as the slow way writes them, alone and in lists") {
  const auto plan = plan_of({slot("i", Kind::ints)});
  std::vector<int64_t> all;
  for (int bits = 0; bits < 64; ++bits)
    for (const int64_t around : {-1, 0, 1}) {
      all.push_back(static_cast<int64_t>((uint64_t{1} << bits) + static_cast<uint64_t>(around)));
      all.push_back(static_cast<int64_t>(-static_cast<uint64_t>(all.back())));
    }
  Buffer packed;
  for (const int64_t value : all) {
    const Buffer one = slow_varint(static_cast<uint64_t>(value));
    const std::vector<int64_t> single{value};
    CHECK_EQ(example(plan, Row().ints(single)),
             with_length(0x0a, slow_entry("i", 0x1a, with_length(0x0a, one))));
    packed.insert(packed.end(), one.begin(), one.end());
  }
  CHECK_EQ(example(plan, Row().ints(all)),
           with_length(0x0a, slow_entry("i", 0x1a, with_length(0x0a, packed))));
}

TEST("keys and values of every length have the right lengths before them") {
  const auto pool = Pool::create(1 << 20, true);
  for (const size_t key_bytes : {1, 7, 8, 53, 54, 55, 119, 120, 127, 128, 300}) {
    const std::string key(key_bytes, 'k');
    const auto plan = plan_of({slot(key, Kind::bytes, false), slot(key + "2", Kind::ints),
                               slot(key + "3", Kind::floats)});
    RecordWriter writer(plan, nullptr);
    // One writer for all, up and down: what it remembers of the last record must not matter.
    for (const size_t length :
         {0, 1, 3, 4, 8, 16, 17, 66, 120, 127, 128, 129, 16383, 16384, 5, 40000, 2}) {
      const std::string value(length, 'v');
      const std::vector<Bytes> strings{bytes_of(value)};
      const std::vector<int64_t> ints(length, 300);
      const std::vector<float> floats(length, 0.5f);
      const Row row = Row().strings(strings).ints(ints).floats(floats);
      Growing<std::byte> out;
      out.start(*pool, 0);
      CHECK(writer.add(row.cells.data(), nullptr, true, out, *pool));
      Buffer packed_ints;
      Buffer packed_floats;
      for (size_t i = 0; i < length; ++i) {
        packed_ints.push_back(std::byte{0xac});
        packed_ints.push_back(std::byte{0x02});
        for (const uint8_t byte : {0x00, 0x00, 0x00, 0x3f})
          packed_floats.push_back(std::byte{byte});
      }
      const auto chunk = [](const Buffer& body) {
        return body.empty() ? body : with_length(0x0a, body);
      };
      const Buffer expected =
          with_length(0x0a, join({slow_entry(key, 0x0a, with_length(0x0a, text(value))),
                                  slow_entry(key + "2", 0x1a, chunk(packed_ints)),
                                  slow_entry(key + "3", 0x12, chunk(packed_floats))}));
      CHECK_EQ((Buffer{out.data(), out.data() + out.size()}), framed(expected));
    }
  }
}

TEST("keys are sorted by their bytes, not by their letters") {
  const std::vector<int64_t> one{1};
  const auto plan = plan_of({slot("\xef\xbf\xbd", Kind::ints), slot("\xf0\x9f\x98\x80", Kind::ints),
                             slot("a", Kind::ints), slot("B", Kind::ints)});
  const Row row = Row().ints(one).ints(one).ints(one).ints(one);
  const auto entry = [](std::string_view key) {
    return slow_entry(key, 0x1a, with_length(0x0a, hex("01")));
  };
  CHECK_EQ(example(plan, row),
           with_length(0x0a, join({entry("B"), entry("a"), entry("\xef\xbf\xbd"),
                                   entry("\xf0\x9f\x98\x80")})));
}

TEST("a SequenceExample has its context and its lists, one Feature a step") {
  const auto context = plan_of({slot("n", Kind::ints, false)});
  const auto steps =
      plan_of({slot("t", Kind::bytes), slot("f", Kind::floats, false), slot("x", Kind::ints)});
  RecordWriter writer(context, steps);
  const std::vector<int64_t> one{7};
  const std::vector<float> half{0.5f};
  const std::vector<Bytes> two{bytes_of("a"), bytes_of("bc")};
  const Row row = Row().ints(one);
  const std::vector<SlotValues> texts{{two.data(), 2, true}, {nullptr, 0, true}};
  const std::vector<SlotValues> halves{{half.data(), 1, true}};
  const std::vector<StepValues> lists{
      {texts.data(), 2, true}, {halves.data(), 1, true}, {nullptr, 0, false}};
  Written written;
  CHECK(writer.add(row.cells.data(), lists.data(), false, written.out, *written.pool));
  CHECK_EQ(written.bytes(),
           hex("0a 0c | 0a 0a 0a 01 6e 12 05 1a 03 0a 01 07 |"
               "12 27 | 0a 0f 0a 01 66 12 0a | 0a 08 12 06 0a 04 00 00 00 3f |"
               "0a 14 0a 01 74 12 0f | 0a 09 0a 07 0a 01 61 0a 02 62 63 | 0a 02 0a 00"));
  const std::vector<StepValues> none{{nullptr, 0, true}, {nullptr, 0, false}, {nullptr, 0, false}};
  Written empty;
  CHECK(writer.add(Row().ints(one).cells.data(), none.data(), false, empty.out, *empty.pool));
  CHECK_EQ(empty.bytes(),
           hex("0a 0c | 0a 0a 0a 01 6e 12 05 1a 03 0a 01 07 | 12 07 0a 05 0a 01 74 12 00"));
}

struct Columns {
  std::vector<int64_t> ints{1, 2, 3, 4, 5, 6};
  std::vector<int64_t> offsets{0, 2, 2, 6};
  std::string data = "xabcdef";
  std::vector<int64_t> ends{1, 2, 4, 7};
  std::vector<int32_t> short_ends{1, 2, 4, 7};
  std::vector<uint8_t> valid{1, 0, 1};
};

TEST("columns give the records that their rows give, whatever way strings lie") {
  const Columns columns;
  const auto plan = plan_of({slot("i", Kind::ints), slot("s", Kind::bytes, false)});
  const std::vector<Bytes> strings{bytes_of("a"), bytes_of("bc"), bytes_of("def")};
  std::vector<ColumnView> views(2);
  views[0].ints = columns.ints.data();
  views[0].offsets = columns.offsets.data();
  Buffer expected;
  for (size_t row = 0; row < 3; ++row) {
    const auto begin = columns.ints.begin() + columns.offsets[row];
    const std::vector<int64_t> ints(begin, columns.ints.begin() + columns.offsets[row + 1]);
    const std::vector<Bytes> one{strings[row]};
    expected = join({expected, example(plan, Row().ints(ints).strings(one), true)});
  }
  for (int way = 0; way < 3; ++way) {
    views[1] = {};
    if (way == 0) views[1].strings = strings.data();
    if (way > 0) views[1].data = bytes_of(columns.data).data();
    if (way == 1) views[1].ends = columns.ends.data();
    if (way == 2) views[1].short_ends = columns.short_ends.data();
    views[1].check_utf8 = true;
    ColumnWriter writer(plan, nullptr, Pool::create(1 << 20, true));
    CHECK_EQ(writer.check(views, {}, 3).rows, 3u);
    Written written;
    Growing<int64_t> ends;
    ends.start(*written.pool, 0);
    // A byte is enough: each call stops after one record.
    for (size_t row = 0; row < 3; ++row) {
      const auto outcome = writer.write(views, {}, row, 3, 1, true, written.out, &ends);
      CHECK(!outcome.problem);
      CHECK_EQ(outcome.rows, row + 1);
      CHECK_EQ(static_cast<size_t>(ends.back()), written.out.size());
    }
    CHECK_EQ(written.bytes(), expected);
  }
}

TEST("strings of one width are written with their zeros, or without those that are padding") {
  const auto plan = plan_of({slot("s", Kind::bytes, false)});
  const std::vector<std::string> kinds{"abc", "ab", "a", "", {"a\0c", 3}, {"\0b", 2}};
  // More rows than are prefetched at once, and as much memory as they take: no byte more.
  constexpr size_t kRows = 101;
  constexpr size_t kWidth = 3;
  Buffer data(kRows * kWidth);
  for (size_t row = 0; row < kRows; ++row) {
    const std::string& string = kinds[row % kinds.size()];
    std::ranges::copy(bytes_of(string), data.begin() + static_cast<ptrdiff_t>(row * kWidth));
  }
  for (const bool padded : {false, true}) {
    Buffer expected;
    for (size_t row = 0; row < kRows; ++row) {
      const Bytes whole = Bytes(data).subspan(row * kWidth, kWidth);
      const std::vector<Bytes> one{padded ? whole.first(kinds[row % kinds.size()].size()) : whole};
      expected = join({expected, example(plan, Row().strings(one), true)});
    }
    std::vector<ColumnView> views(1);
    views[0].data = data.data();
    views[0].width = kWidth;
    views[0].padded = padded;
    for (const bool check_utf8 : {false, true}) {
      views[0].check_utf8 = check_utf8;
      ColumnWriter writer(plan, nullptr, Pool::create(1 << 20, true));
      CHECK_EQ(writer.check(views, {}, kRows).rows, kRows);
      Written written;
      CHECK_EQ(writer.write(views, {}, 0, kRows, 1 << 20, true, written.out, nullptr).rows, kRows);
      CHECK_EQ(written.bytes(), expected);
    }
  }
}

TEST("a column's problem is that of its first row, and nothing of it is written") {
  const Columns columns;
  const std::string bad = "x\xff\xff\xff\xff\xff\xff";
  std::vector<ColumnView> views(1);
  const auto check = [&](SlotSpec spec, Fault fault, size_t row) {
    const auto plan = plan_of({std::move(spec)});
    ColumnWriter writer(plan, nullptr, Pool::create(1 << 20, true));
    const auto checked = writer.check(views, {}, 3);
    CHECK_EQ(checked.problem.fault, fault);
    CHECK_EQ(checked.rows, row);
    Written written;
    const auto outcome = writer.write(views, {}, 0, 3, 1 << 20, true, written.out, nullptr);
    CHECK_EQ(outcome.problem.fault, fault);
    CHECK_EQ(outcome.rows, row);
    const Bytes all(written.out.data(), written.out.size());
    std::vector<Extent> payloads;
    CHECK_EQ(scan(all, all.size(), payloads).consumed, all.size());
    CHECK_EQ(payloads.size(), row);
  };
  views[0].ints = columns.ints.data();
  views[0].valid = columns.valid.data();
  check(slot("a", Kind::ints, false), Fault::missing, 1);
  views[0].valid = nullptr;
  views[0].offsets = columns.offsets.data();
  SlotSpec threes = slot("a", Kind::ints);
  threes.count = 4;
  check(threes, Fault::wrong_count, 0);
  threes.count = 2;
  threes.ragged = false;
  check(threes, Fault::wrong_count, 1);
  views[0] = {};
  views[0].data = bytes_of(bad).data();
  views[0].ends = columns.ends.data();
  views[0].check_utf8 = true;
  SlotSpec texts = slot("a", Kind::bytes, false);
  texts.utf8 = true;
  check(texts, Fault::not_utf8, 0);
  views[0] = {};
  views[0].absent = true;
  check(slot("a", Kind::ints, false), Fault::missing, 0);
}

TEST("holes leave the key out, and defaults fill it") {
  const Columns columns;
  std::vector<ColumnView> views(2);
  views[0].ints = columns.ints.data();
  views[0].valid = columns.valid.data();
  views[1].absent = true;
  SlotSpec filled = slot("d", Kind::bytes, false, Missing::fill);
  filled.fill_bytes = {"dd"};
  const auto plan = plan_of({slot("a", Kind::ints, false, Missing::hole), filled});
  ColumnWriter writer(plan, nullptr, Pool::create(1 << 20, true));
  Written written;
  CHECK(!writer.write(views, {}, 1, 2, 1, false, written.out, nullptr).problem);
  CHECK_EQ(written.bytes(), hex("0a 0d 0a 0b 0a 01 64 12 06 0a 04 0a 02 64 64"));
}

TEST("columns of steps give SequenceExamples") {
  const Columns columns;
  const auto context = plan_of({});
  const auto steps = plan_of({slot("x", Kind::ints, false)});
  std::vector<StepsView> views(1);
  views[0].column.ints = columns.ints.data();
  views[0].offsets = columns.offsets.data();
  ColumnWriter writer(context, steps, Pool::create(1 << 20, true));
  CHECK(!writer.check({}, views, 3).problem);
  Written written;
  CHECK(!writer.write({}, views, 0, 3, 1, false, written.out, nullptr).problem);
  CHECK_EQ(written.bytes(),
           hex("0a 00 | 12 15 0a 13 0a 01 78 12 0e | 0a 05 1a 03 0a 01 01 | 0a 05 1a 03 0a 01 02"));
  // The same through cells.
  RecordWriter cells(context, steps);
  const std::vector<SlotValues> two{{columns.ints.data(), 1, true},
                                    {columns.ints.data() + 1, 1, true}};
  const std::vector<StepValues> lists{{two.data(), 2, true}};
  Written by_cells;
  CHECK(cells.add(nullptr, lists.data(), false, by_cells.out, *by_cells.pool));
  CHECK_EQ(written.bytes(), by_cells.bytes());
}

TEST("a writer says where a string lies, also after a length took another room") {
  const auto plan = plan_of({slot("b", Kind::bytes, false), slot("a", Kind::bytes, false)});
  RecordWriter writer(plan, nullptr);
  Written written;
  const std::string filler(300, 'x');
  for (const size_t count : {size_t{1}, filler.size(), size_t{2}}) {
    const std::vector<Bytes> first{bytes_of("here")};
    const std::vector<Bytes> second{bytes_of(std::string_view(filler).substr(0, count))};
    size_t located = 0;  // the slot of "b"
    const Row row = Row().strings(first).strings(second);
    CHECK(writer.add(row.cells.data(), nullptr, true, written.out, *written.pool, &located));
    CHECK_EQ(as_text({written.out.data() + located, 4}), std::string_view("here"));
    CHECK_EQ(written.out.size(), located + 4 + kFooterBytes);
  }
}

TEST("written columns hold what was written, in slots that are not skipped") {
  std::vector<SlotSpec> specs{slot("a", Kind::ints), slot("b", Kind::bytes, false, Missing::hole),
                              slot("c", Kind::floats)};
  specs[2].skip = true;
  WrittenColumns columns(plan_of(specs), Pool::create(1 << 20, true));
  const std::vector<int64_t> numbers{5, 6}, none;
  const std::vector<Bytes> strings{bytes_of("one")};
  const std::vector<float> reals{1};
  CHECK(columns.add(Row().ints(numbers).strings(strings).floats(reals).cells.data()));
  CHECK(columns.add(Row().ints(none).absent().floats(reals).cells.data()));
  std::vector<Column> taken = columns.take();
  CHECK_EQ(taken[0].ints.size(), size_t{2});
  CHECK_EQ(taken[0].offsets.back(), int64_t{2});
  CHECK_EQ(taken[1].strings(), size_t{2});
  CHECK_EQ(as_text(taken[1].string(0)), std::string_view("one"));
  CHECK_EQ(int{taken[1].valid.data()[1]}, 0);
  CHECK(!taken[2].floats);
  // A fixed count that is not met is refused.
  WrittenColumns fixed(plan_of({slot("a", Kind::ints, false)}), Pool::create(1 << 20, true));
  CHECK(!fixed.add(Row().ints(numbers).cells.data()));
}

}  // namespace
}  // namespace rekord

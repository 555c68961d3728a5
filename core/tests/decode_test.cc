#include "decode.h"

#include <algorithm>
#include <new>
#include <string>

#include "harness.h"
#include "payloads.h"

namespace rekord {
namespace {

using namespace testing;

const std::string kLong(kViewedBytes, 'L');
const std::string kLonger(2 * kViewedBytes, 'M');

// A slot of every layout, all under the key `a`.
struct Layout {
  const char* name;
  SlotSpec spec;
};

std::vector<Layout> layouts() {
  return {
      {"one int", slot("a", Kind::ints)},
      {"three ints", slot("a", Kind::ints, 3)},
      {"no int", slot("a", Kind::ints, 0)},
      {"any ints", ragged("a", Kind::ints)},
      {"pairs of ints", ragged("a", Kind::ints, 2)},
      {"one float", slot("a", Kind::floats)},
      {"three floats", slot("a", Kind::floats, 3)},
      {"any floats", ragged("a", Kind::floats)},
      {"pairs of floats", ragged("a", Kind::floats, 2)},
      {"one string", slot("a", Kind::bytes)},
      {"three strings", slot("a", Kind::bytes, 3)},
      {"any strings", ragged("a", Kind::bytes)},
      {"pairs of strings", ragged("a", Kind::bytes, 2)},
      {"one text", texts(slot("a", Kind::bytes))},
      {"any texts", texts(ragged("a", Kind::bytes))},
  };
}

// Features that a layout takes, of different lengths; long strings among them where `views`.
std::vector<Buffer> fitting(const SlotSpec& spec, bool views) {
  std::vector<Buffer> out;
  const std::vector<size_t> counts =
      spec.ragged ? std::vector<size_t>{2 * spec.count, 0, 4 * spec.count, spec.count}
                  : std::vector<size_t>{spec.count, spec.count, spec.count, spec.count};
  for (size_t i = 0; i < counts.size(); ++i) {
    std::vector<int64_t> int_values;
    std::vector<float> float_values;
    std::vector<std::string> byte_values;
    for (size_t k = 0; k < counts[i]; ++k) {
      const auto n = static_cast<int64_t>(100 * i + k);
      int_values.push_back(k % 2 == 0 ? n : -n);
      float_values.push_back(static_cast<float>(n) / 4);
      byte_values.push_back(views && (i + k) % 2 == 0 ? kLong + std::to_string(n)
                                                      : "value " + std::to_string(n));
    }
    out.push_back(spec.kind == Kind::ints     ? ints(int_values)
                  : spec.kind == Kind::floats ? floats(float_values)
                                              : strings(byte_values));
  }
  return out;
}

// What the reader without a plan says of `a`.
std::string unplanned(const Buffer& payload) {
  Unplanned sink;
  Scratch scratch;
  Walk<Unplanned> walk(payload, sink, scratch);
  if (walk.example()) return "refused";
  const auto found = sink.values.find("a");
  return found == sink.values.end() ? "-" : found->second;
}

Problem wire_problem(const Buffer& payload) {
  Unplanned sink;
  Scratch scratch;
  return Walk<Unplanned>(payload, sink, scratch).example();
}

std::string planned(const SlotSpec& spec, const std::vector<Buffer>& payloads) {
  Reading reading({spec});
  for (const Buffer& payload : payloads) CHECK(!reading.add_from_slab(payload));
  return reading.take();
}

void check_problem(const RowProblem& found, Fault fault, uint32_t slot, uint64_t at,
                   uint64_t expected, uint64_t got) {
  CHECK_EQ(found.problem.fault, fault);
  CHECK_EQ(found.slot, slot);
  CHECK_EQ(found.problem.at, at);
  CHECK_EQ(found.problem.expected, expected);
  CHECK_EQ(found.problem.found, got);
}

// ---- Values -------------------------------------------------------------------------------

TEST("every layout gives the values of each row, and what the reader without a plan gives") {
  for (const Layout& layout : layouts())
    for (const bool views : {false, true}) {
      std::string expected;
      std::vector<Buffer> payloads;
      for (const Buffer& feature : fitting(layout.spec, views)) {
        payloads.push_back(example({entry("a", feature)}));
        expected += (expected.empty() ? "" : " ") + unplanned(payloads.back());
      }
      CHECK_EQ(planned(layout.spec, payloads), "a: " + expected);
    }
}

TEST("rows may be settled one by one, all at once, or in any pieces") {
  std::vector<Buffer> payloads;
  std::vector<SlotSpec> specs = {slot("i", Kind::ints), ragged("r", Kind::floats),
                                 slot("s", Kind::bytes)};
  for (int64_t i = 0; i < 100; ++i)
    payloads.push_back(
        example({entry("i", ints({i * i * i})),
                 entry("r", floats(std::vector<float>(static_cast<size_t>(i % 4), 0.5f))),
                 entry("s", strings({std::string(static_cast<size_t>(i), 's')}))}));
  Reading whole(specs);
  CHECK(!whole.add_all(payloads));
  const std::string expected = whole.take();
  for (const size_t piece : {1u, 2u, 3u, 15u, 16u, 17u, 33u}) {
    Reading reading(specs);
    for (size_t at = 0; at < payloads.size(); at += piece) {
      const auto begin = payloads.begin() + static_cast<std::ptrdiff_t>(at);
      const auto end =
          payloads.begin() + static_cast<std::ptrdiff_t>(std::min(at + piece, payloads.size()));
      CHECK(!reading.add_all({begin, end}));
    }
    CHECK_EQ(reading.rows(), 100u);
    CHECK_EQ(reading.take(), expected);
  }
}

TEST("ints of every length are read, alone and in a list") {
  std::vector<int64_t> values;
  for (int bit = 0; bit < 64; ++bit)
    for (const int64_t off : {-1, 0})
      values.push_back(static_cast<int64_t>((uint64_t{1} << bit) + static_cast<uint64_t>(off)));
  Reading one({slot("a", Kind::ints)}), many({ragged("a", Kind::ints)});
  std::string expected;
  for (const int64_t value : values) {
    CHECK(!one.add(example({entry("a", ints({value}))})));
    expected += (expected.empty() ? "[" : " [") + std::to_string(value) + "]";
  }
  CHECK_EQ(one.take(), "a: " + expected);
  CHECK(!many.add(example({entry("a", ints(values))})));
  CHECK_EQ(many.take(), "a: " + bracketed(0, values.size(),
                                          [&](size_t i) { return std::to_string(values[i]); }));
}

TEST("strings of every length around the short and the long form are read") {
  std::vector<Buffer> payloads;
  std::string expected;
  for (const size_t bytes :
       {0u, 1u, 15u, 16u, 17u, 50u, 119u, 120u, 127u, 128u, 4095u, 4096u, 4097u, 20'000u, 3u}) {
    const std::string value(bytes, static_cast<char>('a' + bytes % 26));
    payloads.push_back(example({entry("a", strings({value}))}));
    expected += (expected.empty() ? "[" : " [") + shown(std::as_bytes(std::span(value))) + "]";
  }
  CHECK_EQ(planned(slot("a", Kind::bytes), payloads), "a: " + expected);
  CHECK_EQ(planned(texts(slot("a", Kind::bytes)), payloads), "a: " + expected);
  CHECK_EQ(planned(ragged("a", Kind::bytes), payloads), "a: " + expected);
}

TEST("long strings are views into the slab, and short ones are copied") {
  Reading reading({slot("a", Kind::bytes)});
  CHECK(!reading.add_from_slab(example({entry("a", strings({"short"}))})));
  CHECK(!reading.add_from_slab(example({entry("a", strings({kLong}))})));
  const std::vector<Column> columns = reading.columns();
  CHECK(columns[0].viewed);
  REQUIRE(columns[0].views.size() == 2);
  CHECK(columns[0].views[0].data == nullptr);
  CHECK(columns[0].views[1].data != nullptr);
  CHECK_EQ(columns[0].slabs.size(), 1u);
}

TEST("without a slab to hold on to, long strings are copied too") {
  Reading reading({slot("a", Kind::bytes)});
  CHECK(!reading.add(example({entry("a", strings({kLong}))})));
  const std::vector<Column> columns = reading.columns();
  CHECK(!columns[0].viewed);
  CHECK(columns[0].slabs.empty());
}

TEST("batches follow one another without a trace of the one before") {
  Reading reading({slot("a", Kind::bytes), with(ragged("b", Kind::ints), Missing::hole)});
  CHECK(!reading.add_from_slab(example({entry("a", strings({kLong}))})));
  CHECK_EQ(reading.take(), "a: [" + shown(std::as_bytes(std::span(kLong))) + "]  b: -");
  CHECK(!reading.add_from_slab(example({entry("b", ints({1})), entry("a", strings({"x"}))})));
  CHECK_EQ(reading.take(), "a: [x]  b: [1]");
  CHECK_EQ(reading.take(), "a:   b: ");
}

TEST("a plan without slots has rows and no columns") {
  Reading reading({});
  CHECK(!reading.add(example({entry("a", ints({1}))})));
  CHECK(!reading.add({}));
  CHECK_EQ(reading.rows(), 2u);
  CHECK_EQ(reading.take(), "");
}

// ---- Order --------------------------------------------------------------------------------

TEST("keys in any order are the same row, with values that change their length too") {
  const std::vector<SlotSpec> specs = {slot("a", Kind::ints), slot("b", Kind::bytes),
                                       slot("c", Kind::floats), ragged("d", Kind::bytes),
                                       slot("e", Kind::bytes)};
  std::vector<Buffer> sorted, shuffled;
  uint64_t noise = 1;
  for (int64_t row = 0; row < 600; ++row) {
    const auto size = [&] {
      return static_cast<size_t>((noise = noise * 6364136223846793005u + 1442695040888963407u) >>
                                 60);
    };
    std::vector<Buffer> entries = {entry("a", ints({row << size()})),
                                   entry("b", strings({std::string(size(), 'b')})),
                                   entry("c", floats({static_cast<float>(row)})),
                                   entry("d", strings({std::string(size(), 'd')})),
                                   entry("e", strings({std::string(size(), 'e')}))};
    sorted.push_back(example(entries));
    // The same order for a while, then a new one, then one for every record, then the first again.
    if (row >= 100 && row < 200) std::rotate(entries.begin(), entries.begin() + 2, entries.end());
    if (row >= 200 && row < 400)
      for (size_t i = entries.size() - 1; i > 0; --i)
        std::swap(entries[i], entries[size() % (i + 1)]);
    shuffled.push_back(example(entries));
  }
  Reading one(specs), other(specs);
  CHECK(!one.add_all(sorted));
  CHECK(!other.add_all(shuffled));
  CHECK_EQ(one.take(), other.take());
}

TEST("a run of features that always had the same lengths is broken by any record that differs") {
  const std::vector<std::string> keys = {"a", "bb", "a longer key", "d", "e", "f"};
  std::vector<SlotSpec> specs = {slot("n", Kind::ints)};
  for (const std::string& key : keys) specs.push_back(ragged(key, Kind::bytes));
  specs.push_back(slot("x", Kind::floats));
  for (SlotSpec& spec : specs) spec.missing = Missing::hole;
  const auto usual = [&](int64_t row) {
    std::vector<Buffer> entries = {entry("n", ints({row << row % 40}))};
    for (const std::string& key : keys)
      entries.push_back(entry(key, strings({key.substr(0, 1) + std::to_string(100000 + row)})));
    entries.push_back(entry("x", floats({static_cast<float>(row)})));
    return entries;
  };
  using Change = void (*)(std::vector<Buffer>&);
  const std::vector<Change> changes = {
      [](auto& row) { row[3] = entry("a longer key", strings({"another length"})); },
      [](auto& row) { row[3] = entry("a longer kez", strings({"a100000"})); },
      [](auto& row) { row[4] = entry("d", ints({1234567})); },
      [](auto& row) { row[4] = entry("d", strings({"d", "100"})); },
      [](auto& row) { row[2] = entry("bb", strings({})); },
      [](auto& row) { row[2] = entry("bb", Buffer{}); },
      [](auto& row) { row.erase(row.begin() + 3); },
      [](auto& row) { row.resize(4); },
      [](auto& row) { row.insert(row.begin() + 3, entry("stranger", strings({"s100000"}))); },
      [](auto& row) { row.insert(row.begin() + 1, row[5]); },
      [](auto& row) { row.push_back(entry("e", strings({"again"}))); },
      [](auto& row) { row[3] = row[2]; },
      [](auto& row) { std::swap(row[2], row[5]); },
      [](auto& row) { row.clear(); },
  };
  const auto compare = [&](Change change) {
    Reading together(specs);
    for (int64_t row = 0; row < 120; ++row) {
      std::vector<Buffer> entries = usual(row);
      // Once, and later again and again.
      if (row == 7 || (row > 60 && row % 3 == 0)) change(entries);
      Reading fresh(specs);
      const RowProblem expected = fresh.add(example(entries)),
                       found = together.add(example(entries));
      CHECK_EQ(found.problem.fault, expected.problem.fault);
      CHECK_EQ(found.slot, expected.slot);
      CHECK_EQ(together.take(), fresh.take());
    }
  };
  for (const Change change : changes) compare(change);
  // Also where some of them, or all but one, are skipped.
  for (const size_t wanted : {2, 6}) {
    for (size_t i = 0; i < specs.size(); ++i)
      specs[i].skip = wanted == 2 ? i % 2 == 1 : i != wanted;
    for (const Change change : changes) compare(change);
  }
}

TEST("strings of one length need no ends, and get them once another length comes") {
  for (const size_t width : {0, 1, 8, 16, 17, 39}) {
    for (const size_t rows : {1, 15, 16, 17, 1100}) {
      Reading reading({ragged("a", Kind::bytes), slot("b", Kind::bytes)});
      std::string expected;
      const auto add = [&](const std::string& value) {
        CHECK(!reading.add(
            example({entry("a", strings({value, value})), entry("b", strings({value}))})));
        expected += (expected.empty() ? "[" : " [") + value + "]";
      };
      for (size_t row = 0; row < rows; ++row)
        add(std::string(width, static_cast<char>('a' + row % 26)));
      const std::vector<Column> even = reading.columns();
      for (const Column& column : even) CHECK(!column.ends);
      CHECK_EQ(even[0].strings(), 2 * rows);
      CHECK_EQ(even[1].strings(), rows);
      expected.clear();
      for (size_t row = 0; row < rows; ++row)
        add(std::string(width, static_cast<char>('a' + row % 26)));
      add(std::string(width + 1, 'x'));
      add(std::string(width, 'y'));
      const std::string found = reading.take();
      CHECK_EQ(found.substr(found.find("b:")), "b: " + expected);
    }
  }
}

TEST("after records in any order, a length that comes again is not that of another record") {
  // The guess of a slot's header and the length that goes with it belong together.
  const std::vector<SlotSpec> specs = {slot("a", Kind::bytes), slot("b", Kind::bytes),
                                       slot("c", Kind::bytes)};
  const auto row = [](const char* a, bool turned) {
    const std::vector<Buffer> entries = {entry("a", strings({a})), entry("b", strings({"bb"})),
                                         entry("c", strings({"cc"}))};
    return example(turned ? std::vector<Buffer>{entries[2], entries[0], entries[1]} : entries);
  };
  std::vector<Buffer> payloads;
  std::string expected;
  // A turned record ends the guessing for a while, in which only other lengths come; then the same
  // again.
  for (int i = 0; i < 400; ++i) {
    const bool turned = i % 65 == 5, usual = turned || i < 5;
    payloads.push_back(row(usual ? "usual one" : "other", turned));
    expected += std::string(i > 0 ? " [" : "[") + (usual ? "usual one]" : "other]");
  }
  Reading reading(specs);
  CHECK(!reading.add_all(payloads));
  const std::string found = reading.take();
  CHECK_EQ(found.substr(0, found.find("  b:")), "a: " + expected);
}

TEST("keys that come and go, extra ones among them, do not disturb the others") {
  const std::vector<SlotSpec> specs = {with(slot("a", Kind::ints), Missing::hole),
                                       slot("b", Kind::bytes),
                                       with(slot("c", Kind::floats), Missing::hole)};
  Reading reading(specs);
  std::string a, c;
  for (int64_t i = 0; i < 200; ++i) {
    std::vector<Buffer> entries;
    if (i % 7 == 0) entries.push_back(entry("0", strings({"extra"})));
    if (i % 2 == 0) entries.push_back(entry("a", ints({i})));
    if (i % 5 == 0) entries.push_back(entry("aa", ints({i, i})));
    entries.push_back(entry("b", strings({"b"})));
    if (i % 3 == 0) entries.push_back(entry("c", floats({1})));
    CHECK(!reading.add(example(entries)));
    a += i % 2 == 0 ? " [" + std::to_string(i) + "]" : " -";
    c += i % 3 == 0 ? " [1]" : " -";
  }
  const std::string found = reading.take();
  CHECK_EQ(found.substr(0, found.find("  b:")), "a:" + a);
  CHECK_EQ(found.substr(found.find("c:")), "c:" + c);
}

TEST("keys of every length lead to their slots") {
  std::vector<SlotSpec> specs;
  std::vector<Buffer> entries;
  std::string expected;
  for (size_t bytes = 0; bytes < 130; ++bytes) {
    const std::string key(bytes, static_cast<char>('a' + bytes % 26));
    const Kind kind = static_cast<Kind>(1 + bytes % 3);
    specs.push_back(slot(key, kind));
    const auto n = static_cast<int64_t>(bytes);
    entries.push_back(entry(key, kind == Kind::ints     ? ints({n})
                                 : kind == Kind::floats ? floats({static_cast<float>(n)})
                                                        : strings({std::to_string(n)})));
    const std::string value = "[" + std::to_string(n) + "]";
    expected += (bytes > 0 ? "  " : "") + key + ": " + value + " " + value + " " + value;
  }
  Reading reading(specs);
  for (int i = 0; i < 3; ++i) CHECK(!reading.add(example(entries)));
  CHECK_EQ(reading.take(), expected);
}

TEST("a long key that comes first, or alone, is read like any other") {
  for (const Kind kind : {Kind::bytes, Kind::floats, Kind::ints}) {
    const SlotSpec spec = slot(std::string(60, 'k'), kind);
    const Buffer value = kind == Kind::ints     ? ints({5})
                         : kind == Kind::floats ? floats({5})
                                                : strings({"5"});
    Reading reading({spec, with(slot("b", Kind::ints), Missing::hole)});
    for (int i = 0; i < 3; ++i)
      CHECK(!reading.add(example({entry(spec.key, value), entry("b", ints({1}))})));
    CHECK_EQ(reading.take(), spec.key + ": [5] [5] [5]  b: [1] [1] [1]");
  }
}

TEST("keys that agree in length, first and last eight bytes keep apart") {
  std::vector<SlotSpec> specs;
  std::vector<Buffer> entries;
  std::string expected;
  for (int i = 0; i < 10; ++i) {
    const std::string key = "features/" + std::to_string(i) + "/encoded";
    specs.push_back(slot(key, Kind::ints));
    entries.push_back(entry(key, ints({i})));
    expected +=
        (i > 0 ? "  " : "") + key + ": [" + std::to_string(i) + "] [" + std::to_string(i) + "]";
  }
  entries.push_back(entry("features/x/encoded", ints({99})));
  Reading reading(specs);
  CHECK(!reading.add(example(entries)));
  std::reverse(entries.begin(), entries.end());
  CHECK(!reading.add(example(entries)));
  CHECK_EQ(reading.take(), expected);
}

// ---- Odd forms ----------------------------------------------------------------------------

// Features that no usual writer makes, for each layout.
std::vector<Buffer> odd_features(const SlotSpec& spec) {
  if (spec.kind == Kind::ints)
    return {
        hex("1a 06 | 08 01 08 02 08 03"),                 // unpacked
        hex("1a 07 | 0a 01 01 0a 02 02 03"),              // in two pieces
        hex("1a 08 | 0a 02 01 02 | 08 03 | 0a 00"),       // both, and an empty piece
        hex("1a 03 0a 01 01 | 1a 04 0a 02 02 03"),        // two lists of one kind
        hex("0a 03 0a 01 78 | 1a 05 0a 03 01 02 03"),     // another kind before it
        hex("1a 08 | 0a 06 81 00 82 80 00 03"),           // numbers in more bytes than they need
        hex("9a 80 80 80 00 05 0a 03 01 02 03"),          // a padded tag
        hex("1a 85 80 00 | 0a 03 01 02 03"),              // a padded length
        hex("1a 0c | 10 07 | 0a 03 01 02 03 | 15 00*4"),  // unknown fields in the list
        hex("1a 0e | 10 07 | 0a 03 01 02 03 | 1d 00*4 1a 00"),  // and after it
        hex("48 07 | 1a 05 0a 03 01 02 03"),                    // in the Feature
        hex("1a 03 0a 01 01"),
        hex("1a 02 08 05"),
        hex("1a 00"),
        hex("1a 02 0a 00"),
        hex("1a 04 0a 00 0a 00"),
    };
  if (spec.kind == Kind::floats)
    return {
        hex("12 0f | 0d 00 00 80 3f 0d 00 00 00 40 0d 00 00 40 40"),
        hex("12 10 | 0a 04 00 00 80 3f 0a 08 00 00 00 40 00 00 40 40"),
        hex("12 06 0a 04 00 00 80 3f"),
        hex("12 05 0d 00 00 80 3f"),
        hex("12 00"),
        hex("12 02 0a 00"),
        hex("1a 03 0a 01 01 | 12 06 0a 04 00 00 c0 7f"),
    };
  return {
      hex("0a 09 | 0a 01 61 0a 01 62 0a 01 63"),
      hex("0a 03 0a 01 61 | 0a 06 0a 01 62 0a 01 63"),
      hex("0a 0b | 0a 01 61 10 07 0a 01 62 0a 01 63"),
      hex("0a 03 0a 01 61"),
      hex("0a 02 0a 00"),
      hex("0a 00"),
      hex("0a 03 0a 80 00 | 0a 00"),
      hex("0a 06 0a 00 0a 00 0a 00"),
      hex("1a 03 0a 01 01 | 0a 03 0a 01 61"),
  };
}

// Examples of one feature, in every odd form of an entry and around it.
std::vector<Buffer> odd_examples(const Buffer& feature) {
  const Buffer key = hex("0a 01 61"), value = field(2, feature);
  const Buffer usual = field(1, join({key, value}));
  return {
      field(1, usual),
      field(1, field(1, join({value, key}))),                   // the value first
      field(1, field(1, join({key, key, value}))),              // the key twice
      field(1, field(1, join({hex("0a 01 62"), value, key}))),  // two keys
      field(1, field(1, join({key, field(2, {}), value}))),     // the value in pieces
      join({field(1, {}), field(1, usual)}),                    // two Features
      join({field(1, entry("b", ints({7}))), field(1, usual)}),
      join({hex("48 07"), field(1, usual), hex("4a 01 78")}),  // unknown fields around
      field(1, join({hex("48 07"), usual, hex("4a 01 78"), hex("4b 4c")})),  // and inside
      join({hex("8a 80 00"), varint(usual.size()), usual}),                  // a padded tag
      join({hex("0a"), hex("80 80 80 80 00"), field(1, usual)}),  // a padded length of nothing
      field(1, join({entry("a", ints({9, 9, 9})), entry("a", {}), usual})),  // and again, and unset
  };
}

TEST(
    "every odd form of a feature is refused for its count, or gives what the reader without a plan "
    "gives") {
  size_t accepted = 0;
  for (const Layout& layout : layouts())
    for (const Buffer& feature : odd_features(layout.spec))
      for (const Buffer& payload : odd_examples(feature)) {
        Reading reading({layout.spec});
        const RowProblem problem = reading.add_from_slab(payload);
        const std::string expected = unplanned(payload);
        CHECK(expected != "refused");
        if (problem) {
          CHECK(problem.problem.fault == Fault::wrong_count ||
                problem.problem.fault == Fault::wrong_kind);
          continue;
        }
        ++accepted;
        CHECK_EQ(reading.take(), "a: " + expected);
      }
  CHECK(accepted > 500);
}

TEST("an odd record among usual ones stands in its place") {
  Reading reading({slot("a", Kind::ints), slot("b", Kind::bytes)});
  std::vector<Buffer> payloads;
  std::string a, b;
  for (int64_t i = 0; i < 50; ++i) {
    const Buffer feature =
        i % 11 == 3 ? join({hex("1a 02 08"), varint(static_cast<uint64_t>(i))}) : ints({i});
    payloads.push_back(example({entry("a", feature), entry("b", strings({std::to_string(i)}))}));
    if (i % 13 == 5) payloads.back() = join({payloads.back(), hex("48 07")});
    a += " [" + std::to_string(i) + "]";
  }
  CHECK(!reading.add_all(payloads));
  CHECK_EQ(reading.take(), "a:" + a + "  b:" + a);
}

TEST("a float keeps its bits") {
  Reading reading({slot("a", Kind::floats), ragged("b", Kind::floats)});
  const Buffer nan = hex("12 06 0a 04 01 00 a0 7f");
  CHECK(!reading.add(example({entry("a", nan), entry("b", hex("12 05 0d 01 00 a0 7f"))})));
  const std::vector<Column> columns = reading.columns();
  for (const Column& column : columns)
    CHECK_EQ(std::bit_cast<uint32_t>(column.floats.data()[0]), 0x7fa00001u);
}

// ---- Keys that come again ------------------------------------------------------------------

TEST("of a key that comes again the last value counts, in every layout") {
  for (const Layout& layout : layouts())
    for (const bool views : {false, true}) {
      const std::vector<Buffer> features = fitting(layout.spec, views);
      for (const Buffer& first : features)
        for (const Buffer& last : features) {
          const Buffer payload = example({entry("a", first), entry("x", {}), entry("a", last)});
          // Between other rows, so that what is left over or lacking shows.
          const std::string around = unplanned(example({entry("a", features[3])}));
          CHECK_EQ(planned(layout.spec, {example({entry("a", features[3])}), payload,
                                         example({entry("a", features[3])})}),
                   "a: " + around + " " + unplanned(payload) + " " + around);
        }
    }
}

TEST("a value replaces a hole, and a hole a value") {
  for (const Layout& layout : layouts()) {
    if (layout.spec.count == 0) continue;
    const SlotSpec spec = with(layout.spec, Missing::hole);
    const std::vector<Buffer> features = fitting(layout.spec, true);
    const std::string value = unplanned(example({entry("a", features[2])}));
    const Buffer empty = hex(spec.kind == Kind::ints     ? "1a 00"
                             : spec.kind == Kind::floats ? "12 00"
                                                         : "0a 00");
    const std::string emptied = spec.ragged ? "[]" : "-";
    const std::vector<Buffer> rows = {
        example({entry("a", {}), entry("a", features[2])}),
        example({entry("a", features[2]), entry("a", {})}),
        example({entry("a", empty), entry("a", features[2])}),
        example({entry("a", features[2]), entry("a", empty)}),
        example({}),
        example({entry("a", features[2])}),
    };
    CHECK_EQ(planned(spec, rows), "a: " + value + " - " + value + " " + emptied + " - " + value);
  }
}

TEST("a short string and then a long one, replaced by an empty list, leave nothing behind") {
  for (const bool again : {false, true}) {
    Reading reading({ragged("a", Kind::bytes)});
    std::vector<Buffer> entries = {entry("a", strings({"short", kLong}))};
    if (again) entries.push_back(entry("x", {}));
    entries.push_back(entry("a", hex("0a 00")));
    CHECK(!reading.add_from_slab(example(entries)));
    CHECK_EQ(reading.take(), "a: []");
  }
}

// ---- Missing values ------------------------------------------------------------------------

TEST("what is absent, unset or empty follows the table of presence") {
  struct Case {
    const char* what;
    std::vector<Buffer> entries;
    const char* fixed[3];  // required, optional, default: values, or the fault
    const char* varying[3];
  };
  const std::vector<Case> cases = {
      {"absent", {}, {"missing", "-", "[7]"}, {"missing", "-", "[7,8]"}},
      {"unset", {entry("a", {})}, {"missing", "-", "[7]"}, {"missing", "-", "[7,8]"}},
      {"an empty entry",
       {entry("a", hex("48 07"))},
       {"missing", "-", "[7]"},
       {"missing", "-", "[7,8]"}},
      {"empty", {entry("a", hex("1a 00"))}, {"count", "-", "count"}, {"[]", "[]", "[]"}},
      {"an empty piece",
       {entry("a", hex("1a 02 0a 00"))},
       {"count", "-", "count"},
       {"[]", "[]", "[]"}},
      {"one", {entry("a", ints({3}))}, {"[3]", "[3]", "[3]"}, {"[3]", "[3]", "[3]"}},
      {"two", {entry("a", ints({3, 4}))}, {"count", "count", "count"}, {"[3,4]", "[3,4]", "[3,4]"}},
      {"unset after a value",
       {entry("a", ints({3})), entry("a", {})},
       {"missing", "-", "[7]"},
       {"missing", "-", "[7,8]"}},
      {"a value after unset",
       {entry("a", {}), entry("a", ints({3}))},
       {"[3]", "[3]", "[3]"},
       {"[3]", "[3]", "[3]"}},
  };
  for (const Case& each : cases)
    for (const bool varying : {false, true})
      for (const Missing missing : {Missing::refuse, Missing::hole, Missing::fill}) {
        SlotSpec spec = with(varying ? ragged("a", Kind::ints) : slot("a", Kind::ints), missing);
        if (missing == Missing::fill)
          spec.fill_ints = varying ? std::vector<int64_t>{7, 8} : std::vector<int64_t>{7};
        Reading reading({spec});
        // The second and third time the order is known, and the last has another entry before it.
        std::string found;
        for (int i = 0; i < 3; ++i) {
          std::vector<Buffer> entries = each.entries;
          if (i == 2) entries.insert(entries.begin(), entry("0", floats({1})));
          const RowProblem problem = reading.add(example(entries));
          if (problem) found = problem.problem.fault == Fault::missing ? "missing" : "count";
          if (problem)
            CHECK(problem.problem.fault == Fault::missing ||
                  problem.problem.fault == Fault::wrong_count);
        }
        const std::string expected =
            (varying ? each.varying : each.fixed)[static_cast<size_t>(missing)];
        if (found.empty())
          CHECK_EQ(reading.take(), "a: " + expected + " " + expected + " " + expected);
        else
          CHECK_EQ(found, expected);
      }
}

TEST("holes and defaults of every layout stand between values") {
  for (const Layout& layout : layouts()) {
    if (layout.spec.count == 0) continue;
    const std::vector<Buffer> features = fitting(layout.spec, true);
    const Buffer there = example({entry("a", features[0])});
    const std::string value = unplanned(there);
    CHECK_EQ(planned(with(layout.spec, Missing::hole),
                     {example({}), there, example({}), example({}), there}),
             "a: - " + value + " - - " + value);
    SlotSpec filled = with(layout.spec, Missing::fill);
    const size_t count = filled.ragged ? 2 * filled.count : filled.count;
    filled.fill_ints.assign(count, -5);
    filled.fill_floats.assign(count, 0.5f);
    filled.fill_bytes.assign(count, "default");
    const std::string standing = bracketed(0, count, [&](size_t) {
      return std::string(filled.kind == Kind::ints     ? "-5"
                         : filled.kind == Kind::floats ? "0.5"
                                                       : "default");
    });
    CHECK_EQ(planned(filled, {example({}), there, example({}), there}),
             "a: " + standing + " " + value + " " + standing + " " + value);
  }
}

TEST("a hole after more rows than a column has room for at first is remembered") {
  Reading reading(
      {with(slot("a", Kind::ints), Missing::hole), with(ragged("b", Kind::bytes), Missing::hole)});
  std::vector<Buffer> payloads(3000, example({entry("a", ints({1})), entry("b", strings({"b"}))}));
  payloads[2500] = example({});
  CHECK(!reading.add_all(payloads));
  const std::vector<Column> columns = reading.columns();
  for (const Column& column : columns) {
    REQUIRE(column.valid.size() == 3000);
    size_t holes = 0;
    for (size_t i = 0; i < 3000; ++i) holes += column.valid.data()[i] == 0;
    CHECK_EQ(holes, 1u);
    CHECK_EQ(column.valid.data()[2500], 0);
  }
}

TEST("a column without a hole has no record of any") {
  Reading reading({with(slot("a", Kind::ints), Missing::hole)});
  CHECK(!reading.add(example({entry("a", ints({1}))})));
  CHECK(!reading.columns()[0].valid);
}

// ---- Refusals ------------------------------------------------------------------------------

TEST("a wrong kind, count or text is refused with its slot, its place and both numbers") {
  const std::vector<SlotSpec> specs = {slot("a", Kind::ints), slot("b", Kind::floats, 3),
                                       texts(slot("t", Kind::bytes)), ragged("p", Kind::ints, 2)};
  const Buffer a = entry("a", ints({1})), b = entry("b", floats({1, 2, 3})),
               t = entry("t", strings({"t"})), p = entry("p", ints({1, 2}));
  struct Case {
    std::vector<Buffer> entries;
    Fault fault;
    uint32_t slot;
    size_t entry;  // that is to blame
    uint64_t expected, found;
  };
  const uint64_t bytes = 1, floats_ = 2, ints_ = 3;
  const std::vector<Case> cases = {
      {{entry("a", floats({1})), b, t, p}, Fault::wrong_kind, 0, 0, ints_, floats_},
      {{entry("a", strings({"1"})), b, t, p}, Fault::wrong_kind, 0, 0, ints_, bytes},
      {{a, entry("b", ints({1, 2, 3})), t, p}, Fault::wrong_kind, 1, 1, floats_, ints_},
      {{a, b, entry("t", ints({1})), p}, Fault::wrong_kind, 2, 2, bytes, ints_},
      {{entry("a", ints({1, 2})), b, t, p}, Fault::wrong_count, 0, 0, 1, 2},
      {{entry("a", hex("1a 00")), b, t, p}, Fault::wrong_count, 0, 0, 1, 0},
      {{a, entry("b", floats({1, 2})), t, p}, Fault::wrong_count, 1, 1, 3, 2},
      {{a, entry("b", floats(std::vector<float>(100, 1))), t, p}, Fault::wrong_count, 1, 1, 3, 100},
      {{a, b, entry("t", strings({"x", "y"})), p}, Fault::wrong_count, 2, 2, 1, 2},
      {{a, b, entry("t", hex("0a 00")), p}, Fault::wrong_count, 2, 2, 1, 0},
      {{a, b, t, entry("p", ints({1, 2, 3}))}, Fault::wrong_count, 3, 3, 2, 3},
      {{a, b, entry("t", strings({"\xff"})), p}, Fault::not_utf8, 2, 2, 0, 0},
      {{a, b, entry("t", strings({std::string(5000, 'x') + "\xc3"})), p},
       Fault::not_utf8,
       2,
       2,
       0,
       0},
      {{p, t, entry("b", floats({1})), a}, Fault::wrong_count, 1, 2, 3, 1},
      {{entry("0", ints({1})), a, b, t, entry("p", hex("1a 02 08 01"))},
       Fault::wrong_count,
       3,
       4,
       2,
       1},
  };
  for (const Case& each : cases) {
    for (const size_t before : {0u, 1u, 20u}) {
      Reading reading(specs);
      std::vector<Buffer> payloads(before, example({a, b, t, p}));
      payloads.push_back(example(each.entries));
      payloads.push_back(example({a, b, t, p}));
      const RowProblem problem = reading.add_all(payloads);
      CHECK_EQ(reading.rows(), before);
      // Somewhere inside the entry that is to blame; an empty list may be at its very end.
      size_t begin = payloads[before].size();
      for (size_t i = each.entries.size(); i-- > each.entry;) begin -= each.entries[i].size();
      CHECK(problem.problem.at >= begin);
      CHECK(problem.problem.at <= begin + each.entries[each.entry].size());
      check_problem(problem, each.fault, each.slot, problem.problem.at, each.expected, each.found);
    }
  }
}

TEST("a missing value is refused with its slot") {
  Reading reading({slot("a", Kind::ints), slot("b", Kind::ints)});
  check_problem(reading.add(example({entry("a", ints({1}))})), Fault::missing, 1, 0, 0, 0);
  check_problem(reading.add(example({entry("b", ints({1}))})), Fault::missing, 0, 0, 0, 0);
  check_problem(reading.add({}), Fault::missing, 0, 0, 0, 0);
  CHECK_EQ(reading.rows(), 0u);
}

TEST("a refused row leaves no trace, in any layout") {
  for (const Layout& layout : layouts())
    for (const bool views : {false, true})
      for (const Missing missing : {Missing::refuse, Missing::hole}) {
        if (layout.spec.count == 0) continue;
        const std::vector<Buffer> features = fitting(layout.spec, views);
        const SlotSpec spec = with(layout.spec, missing);
        for (const bool last : {false, true}) {
          // Refused because of `z`, which is looked at before or after `a`.
          Reading reading(last ? std::vector<SlotSpec>{spec, slot("z", Kind::ints)}
                               : std::vector<SlotSpec>{slot("z", Kind::ints), spec});
          const auto row = [&](const Buffer& feature, const Buffer& z) {
            return example(last ? std::vector<Buffer>{entry("a", feature), entry("z", z)}
                                : std::vector<Buffer>{entry("z", z), entry("a", feature)});
          };
          std::string a, z;
          for (size_t i = 0; i < features.size(); ++i) {
            CHECK(reading.add_from_slab(row(features[i], floats({1}))));
            CHECK(reading.add_from_slab(row(features[i], {})));
            CHECK_EQ(reading.rows(), i);
            if (missing == Missing::hole)
              CHECK(reading.add_from_slab(example({entry("z", floats({1}))})));
            CHECK(!reading.add_from_slab(row(features[i], ints({static_cast<int64_t>(i)}))));
            a += " " + unplanned(example({entry("a", features[i])}));
            z += " [" + std::to_string(i) + "]";
          }
          CHECK(reading.add_from_slab(row(features[0], floats({1}))));
          CHECK_EQ(reading.take(), last ? "a:" + a + "  z:" + z : "z:" + z + "  a:" + a);
        }
      }
}

TEST("rows before a refused one stay, whatever was waiting") {
  for (const size_t bad : {0u, 1u, 7u, 15u, 16u, 17u, 31u, 40u}) {
    Reading reading({slot("a", Kind::ints), slot("s", Kind::bytes)});
    std::vector<Buffer> payloads;
    std::string expected;
    for (size_t i = 0; i < 41; ++i) {
      const auto n = static_cast<int64_t>(i);
      payloads.push_back(
          example({entry("a", i == bad ? ints({n, n}) : ints({n})), entry("s", strings({"s"}))}));
      if (i < bad) expected += " [" + std::to_string(i) + "]";
    }
    const RowProblem problem = reading.add_all(payloads);
    CHECK_EQ(problem.problem.fault, Fault::wrong_count);
    CHECK_EQ(problem.slot, 0u);
    CHECK_EQ(reading.rows(), bad);
    // And reading may go on.
    CHECK(!reading.add(example({entry("s", strings({"s"})), entry("a", ints({99}))})));
    const std::string found = reading.take();
    CHECK_EQ(found.substr(0, found.find("  s:")), "a:" + expected + " [99]");
  }
}

TEST("what protobuf refuses is refused for the same reason, at the same place") {
  const std::vector<SlotSpec> specs = {with(slot("a", Kind::ints), Missing::hole),
                                       with(slot("f", Kind::floats), Missing::hole),
                                       with(ragged("s", Kind::bytes), Missing::hole),
                                       with(texts(slot("t", Kind::bytes)), Missing::hole)};
  const std::vector<Buffer> payloads = {
      hex("0a"),
      hex("0a 05"),
      hex("0b"),
      hex("0c"),
      hex("08 ff*10 01"),
      hex("0a 02 0a 05"),
      hex("00"),
      hex("0a 20 00*32"),
      hex("0a 01 00"),
      hex("ff*5 01"),
      hex("0a 03 0a 01 0a"),
      example({entry("a", hex("1a 03 0a 01 80"))}),
      example({entry("a", hex("1a 0d 0a 0b ff*10 01"))}),
      example({entry("a", hex("1a 04 0a 05 01 02"))}),
      example({entry("a", hex("1a 02 08 80"))}),
      example({entry("a", hex("1a 07 0a 05 01 02 03 04 80"))}),
      example({entry("a", hex("1a 05 0a 01"))}),
      example({entry("a", ints({1})), entry("f", hex("12 05 0a 03 00 00 00"))}),
      example({entry("f", hex("12 08 0a 06 00*6"))}),
      example({entry("f", hex("12 03 0d 00 00"))}),
      example({entry("s", hex("0a 03 0a 02 61"))}),
      example({entry("s", hex("0a 06 0a 01 61 0a 05 61"))}),
      example({entry("s", hex("0a 05 0a 01 61 0a 80"))}),
      example({entry("\xff", ints({1}))}),
      example({entry("\xff\xff", ints({1})), entry("a", ints({1}))}),
      join({example({entry("a", ints({1}))}), hex("4b")}),
      field(1, join({entry("a", ints({1})), hex("4b")})),
      field(1, hex("0a 07 0a 01 61 12 05 1a 03")),
  };
  for (const Buffer& payload : payloads) {
    const Problem expected = wire_problem(payload);
    REQUIRE(static_cast<bool>(expected));
    for (const size_t before : {0u, 3u}) {
      Reading reading(specs);
      std::vector<Buffer> rows(before, example({entry("a", ints({5})), entry("f", floats({5})),
                                                entry("s", strings({"5"}))}));
      rows.push_back(payload);
      const RowProblem problem = reading.add_all(rows);
      check_problem(problem, expected.fault, RowProblem::kNoSlot, expected.at, expected.expected,
                    expected.found);
      CHECK_EQ(reading.rows(), before);
    }
  }
}

TEST("bytes of nothing but zeros are no feature of any plan") {
  for (const Kind kind : {Kind::bytes, Kind::floats, Kind::ints})
    for (size_t key_bytes = 0; key_bytes < 70; ++key_bytes)
      for (const size_t zeros : {1u, 8u, 16u, 40u, 100u}) {
        SlotSpec spec = with(ragged(std::string(key_bytes, 'k'), kind), Missing::hole);
        Reading reading({spec});
        CHECK_EQ(reading.add(field(1, Buffer(zeros, std::byte{0}))).problem.fault, Fault::tag);
      }
}

TEST("no cut of a payload is read past its end, or taken for the whole") {
  const std::vector<SlotSpec> specs = {
      with(slot("a", Kind::ints), Missing::hole), with(slot("f", Kind::floats, 2), Missing::hole),
      with(ragged("s", Kind::bytes), Missing::hole), with(slot("t", Kind::bytes), Missing::hole)};
  const Buffer whole =
      example({entry("a", ints({300})), entry("f", floats({1, 2})),
               entry("s", strings({"x", "yy"})), entry("t", strings({std::string(200, 't')}))});
  for (size_t bytes = 1; bytes < whole.size(); ++bytes) {
    const Buffer cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(bytes));
    Reading reading(specs);
    // The order and the lengths are known from the row before.
    CHECK(!reading.add(whole));
    CHECK(reading.add(cut));
    CHECK_EQ(reading.rows(), 1u);
    // The Features cut to a whole message that is shorter: entries at its end are missing, or it is
    // bad.
    const Buffer inner(whole.begin() + 3,
                       whole.begin() + static_cast<std::ptrdiff_t>(std::max<size_t>(bytes, 3)));
    const Buffer shorter = field(1, inner);
    CHECK_EQ(static_cast<bool>(reading.add(shorter)), static_cast<bool>(wire_problem(shorter)));
  }
}

// ---- Skipped and unknown keys ----------------------------------------------------------------

TEST("a skipped slot is passed over, whatever it holds") {
  Reading reading(
      {skipped(slot("a", Kind::ints)), slot("b", Kind::ints), skipped(ragged("c", Kind::bytes))});
  CHECK(!reading.add(
      example({entry("a", ints({1})), entry("b", ints({2})), entry("c", strings({"x"}))})));
  CHECK(!reading.add(example({entry("a", floats({1})), entry("b", ints({3}))})));
  CHECK(!reading.add(example({entry("c", ints({1, 2})), entry("b", ints({4}))})));
  CHECK(!reading.add(example({entry("b", ints({5})), entry("a", {}), entry("a", ints({1}))})));
  CHECK_EQ(reading.take(), "b: [2] [3] [4] [5]");
  check_problem(reading.add(example({entry("a", ints({1}))})), Fault::missing, 1, 0, 0, 0);
}

TEST("a record is judged by itself, whatever is refused beside it") {
  // What an unknown key holds is not looked into, also where a later row of the same
  // few has to be found out by a second look.
  Reading reading({slot("b", Kind::ints)});
  const Buffer odd_inside = example({entry("unknown", hex("ff")), entry("b", ints({1}))});
  const Buffer two_values = example({entry("b", ints({1, 2}))});
  check_problem(reading.add_all({odd_inside, two_values, odd_inside}), Fault::wrong_count, 0,
                static_cast<uint64_t>(two_values.size() - 4), 1, 2);
  CHECK_EQ(reading.take(), "b: [1]");
}

TEST("a strict plan refuses a key that it does not have, and says where it stands") {
  const Buffer payload = example({entry("a", ints({1})), entry("other", ints({2}))});
  Reading lenient({slot("a", Kind::ints)}), strict({slot("a", Kind::ints)}, true);
  CHECK(!lenient.add(payload));
  const RowProblem problem = strict.add(payload);
  CHECK_EQ(problem.problem.fault, Fault::unknown_key);
  CHECK_EQ(problem.slot, RowProblem::kNoSlot);
  REQUIRE(problem.problem.expected + problem.problem.found <= payload.size());
  CHECK_EQ(as_text(Bytes(payload).subspan(problem.problem.expected, problem.problem.found)),
           "other");
  CHECK_EQ(strict.rows(), 0u);
  CHECK(!strict.add(example({entry("a", ints({1}))})));
}

TEST("a strict plan takes the keys of its skipped slots") {
  Reading strict({slot("a", Kind::ints), skipped(slot("b", Kind::ints))}, true);
  CHECK(!strict.add(example({entry("a", ints({1})), entry("b", ints({2}))})));
  CHECK(!strict.add(example({entry("b", floats({2})), entry("a", ints({1}))})));
  CHECK(strict.add(example({entry("a", ints({1})), entry("c", {})})));
}

TEST("an entry that protobuf sets aside as unknown is no value") {
  const Buffer set_aside = field(1, join({hex("0a 01 61"), field(2, ints({9})), hex("48 07")}));
  Reading reading({with(slot("a", Kind::ints), Missing::hole)});
  CHECK(!reading.add(field(1, set_aside)));
  CHECK(!reading.add(field(1, join({entry("a", ints({1})), set_aside}))));
  CHECK_EQ(reading.take(), "a: - [1]");
}

TEST("a count of more bytes than there are addresses is a lack of memory, and no more") {
  for (const uint64_t count : {uint64_t{1} << 60, (uint64_t{1} << 61) - 8, uint64_t{1} << 61}) {
    Reading reading({with(slot("a", Kind::ints, count), Missing::hole), slot("b", Kind::ints)});
    // More often than rows can wait.
    for (int i = 0; i < 40; ++i) {
      bool thrown = false;
      try {
        reading.add(example({entry("b", ints({i}))}));
      } catch (const std::bad_alloc&) {
        thrown = true;
      }
      CHECK(thrown);
    }
  }
}

TEST("after rows are settled their slab is nobody's, but for long strings") {
  Reading reading({slot("a", Kind::bytes)});
  for (const bool is_long : {false, true}) {
    const Buffer payload = example({entry("a", strings({is_long ? kLong : "short"}))});
    const BlockRef slab = reading.pool().acquire(payload.size() + kPadding);
    std::memcpy(slab->data(), payload.data(), payload.size());
    CHECK(!reading.add_in({slab->data(), payload.size()}, slab));
    CHECK_EQ(slab.use_count(), is_long ? 2 : 1);
  }
}

// ---- Forms that TensorFlow reads differently ------------------------------------------------

TEST("rows with a key twice, or in an odd form, are noted, and plain ones are not") {
  const Buffer plain = example({entry("a", ints({1})), entry("b", strings({"x"}))});
  const Buffer twice =
      example({entry("a", ints({1})), entry("b", strings({"x"})), entry("a", ints({2}))});
  const Buffer pieces =
      example({entry("a", field(3, join({field(1, packed_ints({1})), field(1, Buffer{})}))),
               entry("b", strings({"x"}))});
  const Buffer stranger =
      example({entry("a", ints({1})),
               entry("b", field(1, join({field(1, text("x")), field(9, text("y"))})))});
  const auto plan = std::make_shared<Plan>(
      std::vector<SlotSpec>{ragged("a", Kind::ints), ragged("b", Kind::bytes)}, true);
  Decoder decoder(plan, Pool::create(0, true));
  std::vector<Padded> payloads;
  for (const Buffer& each : {plain, twice, plain, pieces, plain, stranger, plain})
    payloads.emplace_back(each);
  for (const Padded& payload : payloads) CHECK(!decoder.add(payload, nullptr));
  CHECK(!decoder.settle());
  std::vector<size_t> odd = decoder.maybe_odd();
  std::sort(odd.begin(), odd.end());
  CHECK(odd == (std::vector<size_t>{1, 3, 5}));
  decoder.start();
  CHECK(decoder.maybe_odd().empty());
}

TEST("a row that is refused takes the notes of the rows behind it with it") {
  const Buffer twice = example({entry("a", ints({1})), entry("a", ints({2}))});
  const Buffer refused = example({entry("a", ints({1, 2}))});
  const auto plan = std::make_shared<Plan>(std::vector<SlotSpec>{slot("a", Kind::ints)}, true);
  Decoder decoder(plan, Pool::create(0, true));
  const Padded good(twice), bad(refused);
  CHECK(!decoder.add(good, nullptr));
  CHECK(!decoder.add(bad, nullptr));
  CHECK(!decoder.add(good, nullptr));
  CHECK_EQ(decoder.settle().problem.fault, Fault::wrong_count);
  CHECK_EQ(decoder.rows(), 1u);
  CHECK(decoder.maybe_odd() == std::vector<size_t>{0});
}

TEST("an empty list is a hole, or a wrong number of values, as the slot says") {
  SlotSpec spec = with(slot("a", Kind::ints), Missing::hole);
  Reading lenient({spec});
  CHECK(!lenient.add(example({entry("a", ints({}))})));
  CHECK_EQ(lenient.take(), "a: -");
  spec.empty_is_missing = false;
  Reading exact({spec});
  CHECK_EQ(exact.add(example({entry("a", ints({}))})).problem.fault, Fault::wrong_count);
  CHECK(!exact.add(example({})));
  CHECK_EQ(exact.take(), "a: -");
}

TEST("many columns begin with little memory each, and few with room for many rows") {
  const auto taken_by = [](size_t columns, Kind kind) {
    std::vector<SlotSpec> slots;
    for (size_t i = 0; i < columns; ++i) slots.push_back(slot("key" + std::to_string(i), kind));
    const auto pool = Pool::create(size_t{1} << 30, false);
    {
      Decoder decoder(std::make_shared<const Plan>(std::move(slots), false), pool);
    }
    return pool->idle_bytes() / columns;
  };
  for (const Kind kind : {Kind::ints, Kind::floats, Kind::bytes}) {
    CHECK(taken_by(10'000, kind) <= 512u);
    CHECK(taken_by(4, kind) >= 4096u);
  }
}

}  // namespace
}  // namespace rekord

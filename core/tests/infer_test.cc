#include "infer.h"

#include <cmath>

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;
using testing::text;

// A field of up to 127 bytes.
Buffer field(uint8_t tag, const Buffer& body) {
  return join({{std::byte{tag}, static_cast<std::byte>(body.size())}, body});
}

Buffer entry(std::string_view key, const Buffer& value) {
  return field(0x0a, join({field(0x0a, text(key)), field(0x12, value)}));
}

Buffer example(std::initializer_list<Buffer> entries) { return field(0x0a, join(entries)); }
Buffer sequence(std::initializer_list<Buffer> lists) { return field(0x12, join(lists)); }

const Buffer kUnset;
Buffer ints(std::string_view packed) { return field(0x1a, field(0x0a, hex(packed))); }
Buffer floats(std::string_view packed) { return field(0x12, field(0x0a, hex(packed))); }
Buffer strings(std::initializer_list<Buffer> values) {
  Buffer list;
  for (const Buffer& value : values) list = join({list, field(0x0a, value)});
  return field(0x0a, list);
}
Buffer steps(std::initializer_list<Buffer> features) {
  Buffer list;
  for (const Buffer& feature : features) list = join({list, field(0x0a, feature)});
  return list;
}

const KindCount& kind_of(const KeyFacts& facts, Kind kind) {
  return facts.values.kinds[static_cast<size_t>(kind)];
}

const KeyFacts& facts_of(const Inference& inference, std::string_view key) {
  static const KeyFacts none;
  const auto found = inference.context().find(key);
  return found == inference.context().end() ? none : found->second.facts;
}

TEST("ints give the least and the greatest value, and how many there were") {
  Inference inference;
  CHECK(!inference.add(example({entry("a", ints("05 07"))}), false));
  CHECK(!inference.add(example({entry("a", ints("ff*9 01"))}), false));
  const KeyFacts& a = facts_of(inference, "a");
  CHECK_EQ(inference.records(), 2u);
  CHECK_EQ(a.records, 2u);
  CHECK_EQ(a.values.first, Kind::ints);
  CHECK_EQ(a.values.ints.least, -1);
  CHECK_EQ(a.values.ints.most, 7);
  CHECK_EQ(kind_of(a, Kind::ints).features, 2u);
  CHECK_EQ(kind_of(a, Kind::ints).values.least, 1u);
  CHECK_EQ(kind_of(a, Kind::ints).values.most, 2u);
}

TEST("floats that are no numbers are counted, and leave the range alone") {
  Inference inference;
  // 1.5, NaN, infinity, -2
  const Buffer payload =
      example({entry("f", floats("00 00 c0 3f | 00 00 c0 7f | 00 00 80 7f | 00 00 00 c0"))});
  CHECK(!inference.add(payload, false));
  const Values& f = facts_of(inference, "f").values;
  CHECK_EQ(f.floats.least, -2.0f);
  CHECK_EQ(f.floats.most, 1.5f);
  CHECK_EQ(f.finite, 2u);
  CHECK_EQ(f.nan, 1u);
  CHECK_EQ(f.infinite, 1u);
}

TEST("a key whose strings all begin like an image is noticed, and one that does not ends that") {
  Inference inference;
  const Buffer jpeg = hex("ff d8 ff e0 00");
  const Buffer png = hex("89 50 4e 47 0d 0a 1a 0a 00");
  CHECK(!inference.add(example({entry("j", strings({jpeg, jpeg})), entry("p", strings({png})),
                                entry("m", strings({png})), entry("t", strings({text("hé")}))}),
                       false));
  CHECK(facts_of(inference, "j").values.jpeg);
  CHECK(!facts_of(inference, "j").values.png);
  CHECK(!facts_of(inference, "j").values.utf8);
  CHECK(facts_of(inference, "p").values.png);
  CHECK(facts_of(inference, "t").values.utf8);
  CHECK_EQ(facts_of(inference, "t").values.string_bytes.most, 3u);
  CHECK(!inference.add(example({entry("m", strings({text("")})), entry("t", strings({hex("ff")}))}),
                       false));
  CHECK(!facts_of(inference, "m").values.png);
  CHECK(!facts_of(inference, "m").values.utf8);
  CHECK(!facts_of(inference, "t").values.utf8);
  CHECK_EQ(facts_of(inference, "m").values.string_bytes.least, 0u);
}

TEST("a feature without a kind is counted by itself") {
  Inference inference;
  CHECK(!inference.add(example({entry("a", kUnset)}), false));
  CHECK(!inference.add(example({entry("a", ints("01"))}), false));
  CHECK(!inference.add(example({}), false));
  const KeyFacts& a = facts_of(inference, "a");
  CHECK_EQ(inference.records(), 3u);
  CHECK_EQ(a.records, 2u);
  CHECK_EQ(kind_of(a, Kind::unset).features, 1u);
  CHECK_EQ(a.values.first, Kind::ints);
  CHECK_EQ(a.other, Kind::unset);
}

TEST("the first kind decides, and the first record with another is remembered") {
  Inference inference;
  CHECK(!inference.add(example({entry("a", ints("01"))}), false));
  CHECK(!inference.add(example({entry("a", ints("01"))}), false));
  CHECK(!inference.add(example({entry("a", floats("00 00 80 3f | 00 00 80 3f"))}), false));
  CHECK(!inference.add(example({entry("a", strings({text("x")}))}), false));
  const KeyFacts& a = facts_of(inference, "a");
  CHECK_EQ(a.values.first, Kind::ints);
  CHECK_EQ(a.other, Kind::floats);
  CHECK_EQ(a.other_record, 2u);
  // What another kind had says nothing about the first.
  CHECK_EQ(kind_of(a, Kind::ints).values.most, 1u);
  CHECK_EQ(kind_of(a, Kind::floats).values.most, 2u);
}

TEST("of a key that stands twice, only the last entry counts") {
  Inference inference;
  CHECK(!inference.add(
      example({entry("a", floats("00 00 80 3f | 00 00 80 3f")), entry("a", ints("07"))}), false));
  const KeyFacts& a = facts_of(inference, "a");
  CHECK_EQ(a.records, 1u);
  CHECK_EQ(a.values.first, Kind::ints);
  CHECK_EQ(a.values.finite, 0u);
  CHECK_EQ(kind_of(a, Kind::floats).features, 0u);
  CHECK_EQ(kind_of(a, Kind::ints).features, 1u);
}

TEST("a list of steps gives how many there were, and what each held") {
  Inference inference;
  const Buffer two = sequence({entry("s", steps({ints("01 02"), kUnset}))});
  const Buffer none = sequence({entry("s", steps({}))});
  CHECK(!inference.add(two, true));
  CHECK(!inference.add(none, true));
  CHECK(!inference.add({}, true));
  CHECK(inference.context().empty());
  REQUIRE(inference.steps().contains("s"));
  const KeyFacts& s = inference.steps().find("s")->second.facts;
  CHECK_EQ(s.records, 2u);
  CHECK_EQ(s.steps.least, 0u);
  CHECK_EQ(s.steps.most, 2u);
  CHECK_EQ(kind_of(s, Kind::ints).features, 1u);
  CHECK_EQ(kind_of(s, Kind::unset).features, 1u);
  CHECK_EQ(s.values.ints.most, 2);
}

TEST("a list of steps that comes twice counts as it was the last time") {
  Inference inference;
  const Buffer payload =
      sequence({entry("s", steps({ints("01 02"), ints("03")})), entry("s", steps({ints("04")}))});
  CHECK(!inference.add(payload, true));
  const KeyFacts& s = inference.steps().find("s")->second.facts;
  CHECK_EQ(s.steps.most, 1u);
  CHECK_EQ(s.values.ints.least, 4);
}

TEST("a payload that is refused leaves no trace in the numbers") {
  Inference inference;
  CHECK(!inference.add(example({entry("a", ints("05"))}), false));
  // The second entry has three bytes of floats.
  const Problem problem =
      inference.add(example({entry("a", ints("09")), entry("b", floats("00 00 00"))}), false);
  CHECK_EQ(problem.fault, Fault::packed_floats);
  CHECK_EQ(inference.records(), 1u);
  CHECK_EQ(facts_of(inference, "a").values.ints.most, 5);
  CHECK_EQ(facts_of(inference, "b").records, 0u);
  CHECK(!inference.add(example({entry("a", ints("06"))}), false));
  CHECK_EQ(facts_of(inference, "a").records, 2u);
  CHECK_EQ(facts_of(inference, "a").values.ints.most, 6);
}

TEST("keys are sorted by their bytes, and the empty one is a key") {
  Inference inference;
  CHECK(!inference.add(
      example({entry("b", kUnset), entry("", kUnset), entry("é", kUnset), entry("a", kUnset)}),
      false));
  std::string order;
  for (const auto& [key, facts] : inference.context()) order += key + ",";
  CHECK_EQ(order, ",a,b,é,");
}

TEST("a key too many, or one too long, is not kept but said") {
  Inference few(2);
  CHECK(!few.add(example({entry("a", kUnset), entry("b", kUnset)}), false));
  CHECK(!few.overflowed());
  CHECK(!few.add(example({entry("a", kUnset)}), false));
  CHECK(!few.overflowed());
  CHECK(!few.add(sequence({entry("c", steps({ints("01")}))}), true));
  CHECK(few.overflowed());
  CHECK(few.steps().empty());

  Inference small(10, 3);
  CHECK(!small.add(example({entry("abc", kUnset)}), false));
  CHECK(!small.overflowed());
  CHECK(!small.add(example({entry("d", kUnset)}), false));
  CHECK(small.overflowed());
  CHECK_EQ(small.context().size(), 1u);
}

}  // namespace
}  // namespace rekord

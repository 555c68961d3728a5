#include "sequence.h"

#include <string>

#include "harness.h"
#include "payloads.h"

namespace rekord {
namespace {

using namespace testing;

const std::string kLong(kViewedBytes, 'L');

// A decoder of SequenceExamples, and its columns as text: `a: [1] -` of the context,
// `s: {[1];[2]} {} -` of steps, one brace a record.
class Sequences {
 public:
  Sequences(std::vector<SlotSpec> context, std::vector<SlotSpec> steps, bool strict = false)
      : context_(std::make_shared<Plan>(std::move(context), strict)),
        steps_(std::make_shared<Plan>(std::move(steps), strict)),
        decoder_(context_, steps_, pool_) {}

  RowProblem add(const Buffer& payload) {
    const BlockRef slab = pool_->acquire(payload.size() + kPadding);
    std::memcpy(slab->data(), payload.data(), payload.size());
    return decoder_.add({slab->data(), payload.size()}, slab);
  }

  size_t rows() const { return decoder_.rows(); }

  std::string take() {
    const size_t rows = decoder_.rows();
    const std::vector<Column> context = decoder_.finish_context();
    const std::vector<StepColumn> steps = decoder_.finish_steps();
    std::string out;
    const auto line = [&](const std::string& key, const std::string& text) {
      out += (out.empty() ? "" : "  ") + key + ": " + text;
    };
    for (size_t i = 0; i < context.size(); ++i)
      if (!context_->slots()[i].skip)
        line(context_->slots()[i].key, shown(context_->slots()[i], context[i], rows));
    for (size_t i = 0; i < steps.size(); ++i)
      if (!steps_->slots()[i].skip)
        line(steps_->slots()[i].key, records(steps_->slots()[i], steps[i], rows));
    decoder_.start();
    return out;
  }

 private:
  static std::string records(const SlotSpec& spec, const StepColumn& column, size_t rows) {
    const int64_t* offsets = column.offsets.data();
    const auto steps = static_cast<size_t>(offsets[rows]);
    std::string all = shown(spec, column.column, steps), out;
    if (column.offsets.size() != rows + 1) out += "(offsets of no record) ";
    // Values here have no spaces, so that a space ends a step.
    for (size_t row = 0; row < rows; ++row) {
      out += row > 0 ? " " : "";
      std::string record;
      for (auto step = static_cast<size_t>(offsets[row]);
           step < static_cast<size_t>(offsets[row + 1]); ++step) {
        const size_t end = std::min(all.find(' '), all.size());
        record += (record.empty() ? "" : ";") + all.substr(0, end);
        all.erase(0, end + 1);
      }
      out += column.valid && column.valid.data()[row] == 0 ? "-" : "{" + record + "}";
    }
    return out;
  }

  std::shared_ptr<Pool> pool_ = Pool::create(1 << 24, true);
  std::shared_ptr<const Plan> context_, steps_;
  SequenceDecoder decoder_;
};

Buffer list(std::string_view key, const std::vector<Buffer>& steps) {
  return entry(key, feature_list(steps));
}

TEST("a context and steps of every layout are read") {
  Sequences reading({slot("id", Kind::bytes), with(ragged("labels", Kind::ints), Missing::hole)},
                    {slot("i", Kind::ints), slot("f", Kind::floats, 2), ragged("r", Kind::ints),
                     slot("s", Kind::bytes), ragged("t", Kind::bytes, 2)});
  CHECK(!reading.add(sequence({entry("id", strings({"one"})), entry("labels", ints({1, 2}))},
                              {list("i", {ints({1}), ints({2})}), list("f", {floats({1, 2})}),
                               list("r", {ints({}), ints({1, 2, 3}), ints({4})}),
                               list("s", {strings({"x"}), strings({""})}),
                               list("t", {strings({"a", "b"}), strings({})})})));
  CHECK(!reading.add(
      sequence({entry("id", strings({"two"}))}, {list("i", {}), list("f", {}), list("r", {}),
                                                 list("s", {strings({kLong})}), list("t", {})})));
  CHECK_EQ(reading.rows(), 2u);
  CHECK_EQ(
      reading.take(),
      "id: [one] [two]  labels: [1,2] -  i: {[1];[2]} {}  f: {[1,2]} {}  r: {[];[1,2,3];[4]} {}  "
      "s: {[x];[]} {[" +
          shown(std::as_bytes(std::span(kLong))) + "]}  t: {[a,b];[]} {}");
}

TEST("a list that is not there is refused, a hole, or empty") {
  const Buffer without = sequence({}, {});
  SlotSpec empty = with(ragged("s", Kind::ints), Missing::fill);
  Sequences required({}, {slot("s", Kind::ints)}),
      optional({}, {with(slot("s", Kind::ints), Missing::hole)}), defaulted({}, {empty});
  const RowProblem problem = required.add(without);
  CHECK_EQ(problem.problem.fault, Fault::missing);
  CHECK_EQ(problem.slot, 0u);
  const Buffer there = sequence({}, {list("s", {ints({1})})}), none = sequence({}, {list("s", {})});
  for (const Buffer& payload : {there, without, none, without, there}) {
    CHECK(!optional.add(payload));
    CHECK(!defaulted.add(payload));
  }
  CHECK_EQ(optional.take(), "s: {[1]} - {} - {[1]}");
  CHECK_EQ(defaulted.take(), "s: {[1]} {} {} {} {[1]}");
}

TEST("a step without a kind has no values, where steps may have none") {
  Sequences varying({}, {ragged("s", Kind::ints)}),
      fixed({}, {with(slot("s", Kind::ints), Missing::hole)});
  const Buffer payload = sequence({}, {list("s", {ints({1}), {}, ints({2})})});
  CHECK(!varying.add(payload));
  CHECK_EQ(varying.take(), "s: {[1];[];[2]}");
  const RowProblem problem = fixed.add(payload);
  CHECK_EQ(problem.problem.fault, Fault::missing);
  CHECK_EQ(problem.slot, 0u);
  CHECK_EQ(fixed.add(sequence({}, {list("s", {ints({})})})).problem.fault, Fault::wrong_count);
}

TEST("of a list that comes again the last one counts") {
  Sequences reading({slot("a", Kind::ints)}, {ragged("s", Kind::bytes)});
  CHECK(!reading.add(
      sequence({entry("a", ints({1})), entry("a", ints({2}))},
               {list("s", {strings({"x", kLong}), strings({"y"})}), list("s", {strings({"z"})})})));
  CHECK(!reading.add(join({sequence({entry("a", ints({1}))}, {list("s", {strings({"x"})})}),
                           sequence({entry("a", ints({3}))}, {list("s", {})})})));
  CHECK(!reading.add(sequence({entry("a", ints({4}))}, {list("s", {strings({"w"})})})));
  CHECK_EQ(reading.take(), "a: [2] [3] [4]  s: {[z]} {} {[w]}");
}

TEST("a key of the context without a kind takes away what it had") {
  Sequences reading({with(slot("a", Kind::ints), Missing::hole)}, {});
  CHECK(!reading.add(sequence({entry("a", ints({1})), entry("a", {})}, {})));
  CHECK(!reading.add(sequence({entry("a", {}), entry("a", ints({1}))}, {})));
  CHECK_EQ(reading.take(), "a: - [1]");
}

TEST("a refused record leaves no trace, wherever it is refused") {
  const std::vector<SlotSpec> context = {slot("a", Kind::ints),
                                         with(ragged("b", Kind::bytes), Missing::hole)};
  const std::vector<SlotSpec> steps = {slot("s", Kind::ints),
                                       with(ragged("t", Kind::bytes), Missing::hole),
                                       texts(slot("u", Kind::bytes))};
  const Buffer a = entry("a", ints({1})), b = entry("b", strings({"b", kLong}));
  const Buffer s = list("s", {ints({1}), ints({2})}),
               t = list("t", {strings({"t", kLong}), strings({})}), u = list("u", {strings({"u"})});
  struct Case {
    Buffer payload;
    Fault fault;
    uint32_t slot;
  };
  const std::vector<Case> cases = {
      {sequence({b}, {s, t, u}), Fault::missing, 0},
      {sequence({entry("a", floats({1})), b}, {s, t, u}), Fault::wrong_kind, 0},
      {sequence({entry("a", ints({1, 2})), b}, {s, t, u}), Fault::wrong_count, 0},
      {sequence({b, a}, {t, u}), Fault::missing, 2},
      {sequence({b, a}, {s, t}), Fault::missing, 4},
      {sequence({b, a}, {list("s", {ints({1}), ints({1, 2}), ints({3})}), t, u}),
       Fault::wrong_count, 2},
      {sequence({b, a}, {list("s", {ints({1}), floats({1})}), t, u}), Fault::wrong_kind, 2},
      {sequence({b, a}, {s, t, list("u", {strings({"u"}), strings({"\xff"})})}), Fault::not_utf8,
       4},
      {sequence({b, a}, {u, s, list("t", {strings({"x"}), ints({1})})}), Fault::wrong_kind, 3},
      {join({sequence({b, a}, {s, t, u}), hex("4b")}), Fault::group, RowProblem::kNoSlot},
      {sequence({b, a}, {s, t, u, hex("0a 05")}), Fault::length, RowProblem::kNoSlot},
      {sequence({b, a}, {s, t, entry("u", hex("0a 01"))}), Fault::length, RowProblem::kNoSlot},
  };
  const Buffer good = sequence({a}, {u, s});
  const std::string first = "a: [1]  b: -  s: {[1];[2]}  t: -  u: {[u]}";
  for (const Case& each : cases)
    for (const bool earlier : {false, true}) {
      Sequences reading(context, steps);
      if (earlier)
        CHECK(!reading.add(
            sequence({a, entry("b", strings({"b"}))}, {s, list("t", {strings({"t"})}), u})));
      const RowProblem problem = reading.add(each.payload);
      CHECK_EQ(problem.problem.fault, each.fault);
      CHECK_EQ(problem.slot, each.slot);
      CHECK(problem.problem.at <= each.payload.size());
      CHECK_EQ(reading.rows(), earlier ? 1u : 0u);
      CHECK(!reading.add(good));
      CHECK_EQ(reading.take(),
               earlier ? "a: [1] [1]  b: [b] -  s: {[1];[2]} {[1];[2]}  t: {[t]} -  u: {[u]} {[u]}"
                       : first);
    }
}

TEST("what is wrong in a step is told with its place") {
  Sequences reading({}, {slot("s", Kind::ints)});
  const Buffer payload = sequence({}, {list("s", {ints({1}), ints({2, 3})})});
  const RowProblem problem = reading.add(payload);
  CHECK_EQ(problem.problem.fault, Fault::wrong_count);
  CHECK_EQ(problem.problem.expected, 1u);
  CHECK_EQ(problem.problem.found, 2u);
  // Inside the second step, which is the last seven bytes with its tag and length.
  CHECK(problem.problem.at >= payload.size() - 7);
  CHECK(problem.problem.at <= payload.size());
}

TEST("skipped columns are passed over, and a strict plan knows their keys") {
  const std::vector<SlotSpec> context = {slot("a", Kind::ints), skipped(slot("b", Kind::ints))};
  const std::vector<SlotSpec> steps = {skipped(slot("s", Kind::ints)), ragged("t", Kind::ints)};
  const Buffer payload = sequence({entry("a", ints({1})), entry("b", floats({1}))},
                                  {list("s", {floats({1})}), list("t", {ints({1, 2})})});
  for (const bool strict : {false, true}) {
    Sequences reading(context, steps, strict);
    CHECK(!reading.add(payload));
    CHECK(!reading.add(sequence({entry("a", ints({2}))}, {list("t", {})})));
    CHECK_EQ(reading.take(), "a: [1] [2]  t: {[1,2]} {}");
  }
}

TEST("a strict plan refuses a key that it does not have, in the context and in the steps") {
  for (const bool in_steps : {false, true}) {
    const Buffer payload = in_steps
                               ? sequence({entry("a", ints({1}))}, {list("other", {})})
                               : sequence({entry("a", ints({1})), entry("other", ints({1}))}, {});
    Sequences lenient({slot("a", Kind::ints)}, {}), strict({slot("a", Kind::ints)}, {}, true);
    CHECK(!lenient.add(payload));
    const RowProblem problem = strict.add(payload);
    CHECK_EQ(problem.problem.fault, Fault::unknown_key);
    CHECK_EQ(problem.slot, RowProblem::kNoSlot);
    REQUIRE(problem.problem.expected + problem.problem.found <= payload.size());
    CHECK_EQ(as_text(Bytes(payload).subspan(problem.problem.expected, problem.problem.found)),
             "other");
    CHECK_EQ(strict.rows(), 0u);
  }
}

TEST("holes after many records are remembered, one for each list") {
  Sequences reading(
      {}, {with(slot("s", Kind::ints), Missing::hole), with(slot("t", Kind::ints), Missing::hole)});
  std::string s, t;
  for (int i = 0; i < 2000; ++i) {
    std::vector<Buffer> lists;
    if (i % 500 != 499) lists.push_back(list("s", {ints({1})}));
    if (i < 1900) lists.push_back(list("t", {}));
    CHECK(!reading.add(sequence({}, lists)));
    s += i % 500 != 499 ? " {[1]}" : " -";
    t += i < 1900 ? " {}" : " -";
  }
  CHECK_EQ(reading.take(), "s:" + s + "  t:" + t);
}

TEST("batches follow one another without a trace of the one before") {
  Sequences reading({}, {with(ragged("s", Kind::bytes), Missing::hole)});
  CHECK(!reading.add(sequence({}, {})));
  CHECK(!reading.add(sequence({}, {list("s", {strings({kLong})})})));
  CHECK_EQ(reading.take(), "s: - {[" + shown(std::as_bytes(std::span(kLong))) + "]}");
  CHECK(!reading.add(sequence({}, {list("s", {strings({"x"})})})));
  CHECK_EQ(reading.take(), "s: {[x]}");
}

TEST("a short list in place of one with a long string keeps its values when more follow") {
  Sequences sequences({}, {slot("s", Kind::bytes)});
  std::vector<Buffer> replaced, next;
  std::string expected = "s: {[kept]} {";
  for (int i = 0; i < 10; ++i) replaced.push_back(strings({"old" + std::to_string(i)}));
  replaced.push_back(strings({kLong}));
  for (int i = 0; i < 12; ++i) {
    next.push_back(strings({"new" + std::to_string(i)}));
    expected += (i > 0 ? ";[new" : "[new") + std::to_string(i) + "]";
  }
  CHECK(!sequences.add(sequence({}, {list("s", replaced), list("s", {strings({"kept"})})})));
  CHECK(!sequences.add(sequence({}, {list("s", next)})));
  CHECK_EQ(sequences.take(), expected + "}");
}

}  // namespace
}  // namespace rekord

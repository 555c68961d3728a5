// The planned decoder against the walk without a plan, which it must agree with.
//
//     | choices | slots: n, then 3 bytes each | where to cut | payload A … | payload B … |
//
// The rows A, B, A, B are decoded by the plan, of Examples or of SequenceExamples. For each
// the walk says what must come of it: these values, or a refusal for a reason of the plan, or
// one of the wire. A refused row leaves no trace. Only what is wrong inside an entry that the
// plan does not want, or that a later one replaces, may go unnoticed. With one bit of the
// choices the slots are not read but taken from payload A itself, so that rows are accepted.

#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "decode.h"
#include "sequence.h"

namespace {

using namespace rekord;

void require(bool holds) {
  if (!holds) std::abort();
}

constexpr size_t kMostSlots = 6;
// Long ones, an empty one, and two that only differ in the middle.
constexpr std::string_view kKeys[] = {
    "a",
    "b",
    "label",
    "",
    "image/encoded",
    "features/1000/encoded",
    "features/1001/encoded",
    "a key that is so long that its header does not fit the words of a plan"};

// The values of one Feature.
struct Value {
  Kind kind = Kind::unset;
  std::vector<int64_t> ints;
  std::vector<float> floats;
  std::vector<Bytes> strings;

  size_t size() const noexcept { return ints.size() + floats.size() + strings.size(); }
};

Value value_of(const FeatureView& view) {
  Value value{view.kind, {}, {}, {}};
  if (view.kind == Kind::ints) {
    value.ints.resize(view.count);
    copy_ints(view, value.ints);
  } else if (view.kind == Kind::floats) {
    value.floats.resize(view.count);
    copy_floats(view, value.floats);
  } else if (view.kind == Kind::bytes) {
    for_each_bytes(view, [&](Bytes one) { value.strings.push_back(one); });
  }
  return value;
}

enum class Fit { good, hole, missing, bad };

bool divides(const SlotSpec& spec, size_t values) {
  if (!spec.ragged) return values == spec.count;
  return spec.count == 0 ? values == 0 : values % spec.count == 0;
}

// What a Feature is to its slot. `holes`: an empty list may stand for a missing value.
Fit fit(const SlotSpec& spec, const Value& value, bool holes) {
  if (value.kind == Kind::unset) return Fit::missing;
  if (value.kind != spec.kind) return Fit::bad;
  if (!divides(spec, value.size())) return value.size() == 0 && holes ? Fit::hole : Fit::bad;
  if (spec.utf8)
    for (const Bytes one : value.strings)
      if (!is_utf8(one)) return Fit::bad;
  return Fit::good;
}

// A value that is not there, as the column has it.
Value absent(const SlotSpec& spec) {
  Value value{Kind::unset, {}, {}, {}};
  const size_t count = spec.ragged ? 0 : static_cast<size_t>(spec.count);
  const bool fill = spec.missing == Missing::fill;
  if (spec.kind == Kind::ints) value.ints = fill ? spec.fill_ints : std::vector<int64_t>(count);
  if (spec.kind == Kind::floats) value.floats = fill ? spec.fill_floats : std::vector<float>(count);
  if (spec.kind == Kind::bytes) {
    for (const std::string& one : spec.fill_bytes)
      value.strings.push_back(std::as_bytes(std::span(one)));
    if (!fill) value.strings.resize(count);
  }
  if (fill) value.kind = spec.kind;
  return value;
}

// One row as the walk has it.
struct Row {
  bool wire = false;                      // protobuf would refuse the payload
  bool unnoticed = false;                 // or would, for something that the plan does not want
  bool refused = false;                   // for a reason of the plan
  std::vector<Value> values;              // by slot
  std::vector<std::vector<Value>> steps;  // by slot of the steps
  std::vector<bool> lists;                // which of them are there
};

uint32_t slot_of(const Plan& plan, std::string_view key) {
  for (uint32_t i = 0; i < plan.slots().size(); ++i)
    if (plan.slots()[i].key == key) return i;
  return Lookup::kNone;
}

// How the last entry of a slot stands.
enum class Last : uint8_t { absent, there, bad, malformed };

// Takes a feature of a context or an Example into the row, in place of an earlier one.
void note(const Plan& plan, std::string_view key, const FeatureView& view, Row& row,
          std::vector<Last>& last) {
  const uint32_t slot = slot_of(plan, key);
  if (slot == Lookup::kNone) {
    row.refused |= plan.refuses(key);
    return;
  }
  const SlotSpec& spec = plan.slots()[slot];
  if (spec.skip) return;
  if (last[slot] == Last::malformed) row.unnoticed = true;
  Value value = value_of(view);
  switch (fit(spec, value, spec.missing == Missing::hole)) {
    case Fit::good:
      row.values[slot] = std::move(value);
      last[slot] = Last::there;
      return;
    case Fit::hole:
      row.values[slot] = absent(spec);
      last[slot] = Last::there;
      return;
    case Fit::missing:
      last[slot] = Last::absent;
      return;
    case Fit::bad:
      last[slot] = Last::bad;
  }
}

void finish(const Plan& plan, Row& row, const std::vector<Last>& last) {
  for (size_t i = 0; i < plan.slots().size(); ++i) {
    const SlotSpec& spec = plan.slots()[i];
    row.wire |= last[i] == Last::malformed;
    row.refused |= last[i] == Last::bad;
    if (spec.skip || last[i] != Last::absent) continue;
    row.refused |= spec.missing == Missing::refuse;
    row.values[i] = absent(spec);
  }
}

// The features of one message, entry by entry, so that one that nobody wants may be wrong.
void features(const Plan& plan, Bytes message, const std::byte* origin, Row& row,
              std::vector<Last>& last) {
  Reader reader(message, origin, 1);
  Scratch scratch;
  Tag tag{};
  Bytes body;
  while (!row.wire && !reader.done()) {
    if (reader.tag(tag)) {
      row.wire = true;
    } else if (tag.raw != 0x0a) {
      row.wire = static_cast<bool>(reader.skip(tag));
    } else if (reader.bytes(body)) {
      row.wire = true;
    } else {
      Entry entry;
      FeatureView view;
      if (read_entry(body, origin, entry, scratch.values)) {
        row.wire = true;
      } else if (read_feature(scratch.values, origin, 3, scratch, view)) {
        const uint32_t slot = slot_of(plan, entry.key);
        if (!entry.known)
          row.wire = true;
        else if (slot == Lookup::kNone ? !plan.refuses(entry.key) : plan.slots()[slot].skip)
          row.unnoticed = true;
        else if (slot == Lookup::kNone)
          row.wire = true;
        else
          last[slot] = Last::malformed;
      } else if (entry.known) {
        note(plan, entry.key, view, row, last);
      }
    }
  }
}

Row example_row(const Plan& plan, Bytes payload) {
  Row row;
  row.values.resize(plan.slots().size());
  std::vector<Last> last(plan.slots().size());
  Reader reader(payload, payload.data());
  Tag tag{};
  Bytes body;
  while (!row.wire && !reader.done()) {
    if (reader.tag(tag) || (tag.raw == 0x0a ? reader.bytes(body) : reader.skip(tag)))
      row.wire = true;
    else if (tag.raw == 0x0a)
      features(plan, body, payload.data(), row, last);
  }
  finish(plan, row, last);
  return row;
}

struct SequenceSink {
  const Plan& context;
  const Plan& plan;
  Row row;
  std::vector<Last> last;
  std::vector<bool> bad;  // lists of steps
  uint32_t list = Lookup::kNone;

  SequenceSink(const Plan& c, const Plan& s)
      : context(c), plan(s), last(c.slots().size()), bad(s.slots().size()) {
    row.values.resize(c.slots().size());
    row.steps.resize(s.slots().size());
    row.lists.resize(s.slots().size());
  }
  void feature(std::string_view key, const FeatureView& view) {
    note(context, key, view, row, last);
  }
  void begin_steps(std::string_view key) {
    list = slot_of(plan, key);
    if (list == Lookup::kNone) {
      row.refused |= plan.refuses(key);
    } else if (plan.slots()[list].skip) {
      list = Lookup::kNone;
    } else {
      row.steps[list].clear();
      row.lists[list] = true;
      bad[list] = false;
    }
  }
  void step(const FeatureView& view) {
    if (list == Lookup::kNone) return;
    const SlotSpec& spec = plan.slots()[list];
    Value value = value_of(view);
    const Fit how = fit(spec, value, false);
    if (how == Fit::missing && spec.missing == Missing::fill) value = absent(spec);
    // A step without a kind has no values, where that is allowed.
    else if (how == Fit::bad || (how == Fit::missing && !spec.ragged))
      bad[list] = true;
    row.steps[list].push_back(std::move(value));
  }
  void end_steps() noexcept {}
};

Row sequence_row(const Plan& context, const Plan& steps, Bytes payload) {
  SequenceSink sink(context, steps);
  Scratch scratch;
  Walk<SequenceSink> walk(payload, sink, scratch);
  sink.row.wire = static_cast<bool>(walk.sequence());
  finish(context, sink.row, sink.last);
  for (size_t i = 0; i < steps.slots().size(); ++i) {
    const bool required = !steps.slots()[i].skip && steps.slots()[i].missing == Missing::refuse;
    sink.row.refused |= sink.bad[i] || (required && !sink.row.lists[i]);
  }
  return std::move(sink.row);
}

// ---- Columns against rows -----------------------------------------------------------------

void require_column(const SlotSpec& spec, const Column& column,
                    const std::vector<const Value*>& rows, bool holes) {
  if (spec.skip) return;
  size_t at = 0;
  for (size_t row = 0; row < rows.size(); ++row) {
    const Value& value = *rows[row];
    for (const int64_t one : value.ints) require(column.ints.data()[at++] == one);
    for (const float one : value.floats)
      require(std::bit_cast<uint32_t>(column.floats.data()[at++]) == std::bit_cast<uint32_t>(one));
    for (const Bytes one : value.strings) require(as_text(column.string(at++)) == as_text(one));
    if (spec.ragged) require(column.offsets.data()[row + 1] == static_cast<int64_t>(at));
    const bool there = value.kind != Kind::unset || !holes;
    require((!column.valid || column.valid.data()[row] == 1) == there);
  }
  require(!column.valid || column.valid.size() == rows.size());
  if (spec.ragged)
    require(column.offsets.data()[0] == 0 && column.offsets.size() == rows.size() + 1);
  const size_t values = spec.kind == Kind::ints     ? column.ints.size()
                        : spec.kind == Kind::floats ? column.floats.size()
                                                    : column.strings();
  require(values == at);
}

void require_columns(const Plan& plan, const std::vector<Column>& columns,
                     const std::vector<Row>& rows) {
  for (size_t i = 0; i < columns.size(); ++i) {
    std::vector<const Value*> values;
    for (const Row& row : rows) values.push_back(&row.values[i]);
    require_column(plan.slots()[i], columns[i], values, plan.slots()[i].missing == Missing::hole);
  }
}

void require_steps(const Plan& plan, const std::vector<StepColumn>& columns,
                   const std::vector<Row>& rows) {
  for (size_t i = 0; i < columns.size(); ++i) {
    const SlotSpec& spec = plan.slots()[i];
    if (spec.skip) continue;
    std::vector<const Value*> values;
    for (size_t row = 0; row < rows.size(); ++row) {
      for (const Value& value : rows[row].steps[i]) values.push_back(&value);
      require(columns[i].offsets.data()[row + 1] == static_cast<int64_t>(values.size()));
      const bool there = rows[row].lists[i] || spec.missing != Missing::hole;
      require((!columns[i].valid || columns[i].valid.data()[row] == 1) == there);
    }
    require(columns[i].offsets.size() == rows.size() + 1);
    require(!columns[i].valid || columns[i].valid.size() == rows.size());
    require_column(spec, columns[i].column, values, false);
  }
}

// ---- Plans --------------------------------------------------------------------------------

class Choices {
 public:
  explicit Choices(Bytes input) : left_(input) {}
  uint8_t next() {
    if (left_.empty()) return 0;
    const auto byte = std::to_integer<uint8_t>(left_.front());
    left_ = left_.subspan(1);
    return byte;
  }
  Bytes left() const { return left_; }

 private:
  Bytes left_;
};

void set_missing(SlotSpec& spec, unsigned choice) {
  spec.missing = static_cast<Missing>(choice % 3);
  if (spec.missing != Missing::fill) return;
  const size_t values = spec.ragged ? static_cast<size_t>(spec.count) * (choice / 3 % 2)
                                    : static_cast<size_t>(spec.count);
  if (spec.kind == Kind::ints) spec.fill_ints.assign(values, -7);
  if (spec.kind == Kind::floats) spec.fill_floats.assign(values, 0.5f);
  if (spec.kind == Kind::bytes) spec.fill_bytes.assign(values, "a default of some length");
}

bool has(const std::vector<SlotSpec>& slots, std::string_view key) {
  for (const SlotSpec& spec : slots)
    if (spec.key == key) return true;
  return false;
}

std::vector<SlotSpec> read_slots(Choices& choices) {
  std::vector<SlotSpec> slots;
  for (size_t n = choices.next() % (kMostSlots + 1); n > 0; --n) {
    const unsigned key = choices.next(), form = choices.next(), missing = choices.next();
    SlotSpec spec;
    spec.key = kKeys[key % std::size(kKeys)];
    spec.kind = static_cast<Kind>(1 + form % 3);
    spec.count = form / 3 % 4;
    spec.ragged = (form & 0x20) != 0;
    spec.utf8 = (form & 0x40) != 0;
    spec.skip = (form & 0x80) != 0;
    set_missing(spec, missing);
    if (!has(slots, spec.key)) slots.push_back(std::move(spec));
  }
  return slots;
}

// Slots that the payload itself fits, or nearly.
struct Own {
  std::vector<SlotSpec> context, steps;
  std::string_view list;
  unsigned form;

  void add(std::vector<SlotSpec>& slots, std::string_view key, const FeatureView& view) {
    if (view.kind == Kind::unset || has(slots, key) || slots.size() >= kMostSlots / 2) return;
    SlotSpec spec;
    spec.key = key;
    spec.kind = view.kind;
    spec.ragged = (form & 1) != 0 || view.count > 64;
    spec.count = spec.ragged ? 1 : view.count;
    spec.skip = (form & 2) != 0;
    set_missing(spec, form >> 2);
    slots.push_back(std::move(spec));
    form = form * 5 + 3;
  }
  void feature(std::string_view key, const FeatureView& view) { add(context, key, view); }
  void begin_steps(std::string_view key) { list = key; }
  void step(const FeatureView& view) { add(steps, list, view); }
  void end_steps() noexcept {}
};

std::vector<std::byte> padded(Bytes payload) {
  std::vector<std::byte> copy(payload.begin(), payload.end());
  copy.resize(payload.size() + kPadding, std::byte{0x0a});
  return copy;
}

bool of_the_plan(Fault fault) { return fault >= Fault::missing; }

void require_refusal(const RowProblem& problem, const Row& row, Bytes payload) {
  require(problem.problem.at <= payload.size());
  // Who refuses has looked at everything, so that protobuf's reasons come first.
  const bool wire = row.wire || row.unnoticed;
  require(of_the_plan(problem.problem.fault) ? row.refused && !wire : wire);
}

// Adds the rows, all of them before any is settled or one by one; gives those accepted.
template <class AnyDecoder, class Expect>
std::vector<Row> decode(AnyDecoder& decoder, const std::vector<Bytes>& payloads, bool at_once,
                        Expect&& expect) {
  std::vector<Row> rows, accepted;
  for (const Bytes payload : payloads) rows.push_back(expect(payload));
  for (size_t next = 0; next < payloads.size();) {
    // A problem is that of the first row which is not in the batch, whenever it shows.
    const size_t first = next;
    RowProblem problem;
    do {
      problem = decoder.add(payloads[next], nullptr);
      ++next;
    } while (!problem && at_once && next < payloads.size());
    if (!problem) problem = decoder.settle();
    const size_t good = decoder.rows() - accepted.size();
    require(problem ? first + good < next : first + good == next);
    for (size_t i = first; i < first + good; ++i) {
      require(!rows[i].wire && !rows[i].refused);
      accepted.push_back(rows[i]);
    }
    if (!problem) continue;
    require_refusal(problem, rows[first + good], payloads[first + good]);
    next = first + good + 1;
  }
  return accepted;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Choices choices({reinterpret_cast<const std::byte*>(data), size});
  const uint8_t first = choices.next();
  const bool sequence = (first & 1) != 0, strict = (first & 2) != 0, own = (first & 4) != 0;
  const bool at_once = (first & 8) != 0;
  std::vector<SlotSpec> context, steps;
  if (!own) {
    context = read_slots(choices);
    if (sequence) steps = read_slots(choices);
  }
  const size_t cut = choices.next();
  const Bytes left = choices.left();
  const auto a = padded(left.first(left.size() * cut / 255)),
             b = padded(left.subspan(left.size() * cut / 255));
  const Bytes payload_a(a.data(), a.size() - kPadding), payload_b(b.data(), b.size() - kPadding);
  if (own) {
    Own sink{{}, {}, {}, static_cast<unsigned>(first) >> 4};
    Scratch scratch;
    Walk<Own> walk(payload_a, sink, scratch);
    static_cast<void>(sequence ? walk.sequence() : walk.example());
    context = std::move(sink.context);
    steps = std::move(sink.steps);
  }

  const std::vector<Bytes> payloads = {payload_a, payload_b, payload_a, payload_b};
  // Of the process, not of the input: the first buffers of a column are not small.
  static const auto pool = Pool::create(8 << 20, true);
  const auto plan = std::make_shared<const Plan>(std::move(context), strict);
  if (!sequence) {
    Decoder decoder(plan, pool);
    const std::vector<Row> rows = decode(
        decoder, payloads, at_once, [&](Bytes payload) { return example_row(*plan, payload); });
    require_columns(*plan, decoder.finish(), rows);
    return 0;
  }
  const auto step_plan = std::make_shared<const Plan>(std::move(steps), strict);
  SequenceDecoder decoder(plan, step_plan, pool);
  const std::vector<Row> rows = decode(decoder, payloads, at_once, [&](Bytes payload) {
    return sequence_row(*plan, *step_plan, payload);
  });
  require_columns(*plan, decoder.finish_context(), rows);
  require_steps(*step_plan, decoder.finish_steps(), rows);
  return 0;
}

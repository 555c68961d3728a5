#include "kind.h"

#include "example.h"

namespace rekord {
namespace {

// Counts what a walk meets.
struct Tally {
  size_t features = 0;
  size_t with_kind = 0;
  size_t lists = 0;

  void feature(std::string_view, const FeatureView& view) noexcept {
    ++features;
    with_kind += view.kind != Kind::unset;
  }
  void begin_steps(std::string_view) noexcept { ++lists; }
  void step(const FeatureView& view) noexcept { with_kind += view.kind != Kind::unset; }
  void end_steps() noexcept {}
};

struct Reading {
  bool parses = false;
  bool strict = false;  // and no field in it is unknown
  Tally tally;

  // Unknown fields are allowed beside features that really hold something.
  bool convinces() const noexcept { return strict || (parses && tally.with_kind > 0); }
};

template <class Parse>
Reading read_as(Bytes payload, Scratch& scratch, Parse parse) {
  Reading reading;
  Walk<Tally> walk(payload, reading.tally, scratch);
  reading.parses = !(walk.*parse)();
  reading.strict =
      reading.parses && (walk.oddities() & (odd::unknown_top | odd::unknown_inner)) == 0;
  return reading;
}

Reading read_as_example(Bytes payload, Scratch& scratch) {
  return read_as(payload, scratch, &Walk<Tally>::example);
}

Reading read_as_sequence(Bytes payload, Scratch& scratch) {
  return read_as(payload, scratch, &Walk<Tally>::sequence);
}

bool is_list_with_context(Bytes payload, Scratch& scratch) {
  Reader reader(payload, payload.data());
  Tag tag{};
  Bytes body;
  size_t features = 0;
  while (!reader.done()) {
    if (reader.tag(tag) || tag.wire != Wire::len || tag.field > 2 || reader.bytes(body))
      return false;
    const Reading inner = read_as_example(body, scratch);
    if (!inner.strict) return false;
    features += inner.tally.features;
  }
  return features > 0;
}

// wall_time comes first and is a double; everything else is optional.
bool is_event(Bytes payload) noexcept {
  Reader reader(payload, payload.data());
  Tag tag{};
  if (reader.done() || reader.tag(tag) || tag.field != 1 || tag.wire != Wire::i64 ||
      reader.skip(tag))
    return false;
  while (!reader.done()) {
    if (reader.tag(tag) || tag.field < 2 || tag.field > 10) return false;
    if (tag.wire != (tag.field == 2 ? Wire::varint : Wire::len) || reader.skip(tag)) return false;
  }
  return true;
}

bool is_text(Bytes payload) noexcept {
  for (std::byte byte : payload) {
    const auto c = std::to_integer<uint8_t>(byte);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r' && c != '\f') || c == 0x7f) return false;
  }
  return is_utf8(payload);
}

bool is_message(Bytes payload) noexcept {
  Reader reader(payload, payload.data());
  Tag tag{};
  while (!reader.done())
    if (reader.tag(tag) || reader.skip(tag)) return false;
  return true;
}

}  // namespace

PayloadKind recognise(Bytes payload) {
  if (payload.empty()) return PayloadKind::example;  // a valid Example without features
  Scratch scratch;
  if (is_list_with_context(payload, scratch)) return PayloadKind::list_with_context;
  const Reading sequence = read_as_sequence(payload, scratch);
  if (sequence.convinces() && sequence.tally.lists > 0) return PayloadKind::sequence;
  if (read_as_example(payload, scratch).convinces()) return PayloadKind::example;
  if (is_event(payload)) return PayloadKind::event;
  if (is_text(payload)) return PayloadKind::text;
  return is_message(payload) ? PayloadKind::proto : PayloadKind::other;
}

}  // namespace rekord

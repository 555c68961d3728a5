// Any payload, read as an Example, as a SequenceExample and as whatever it may be: the
// counts are what the copies give, every reading agrees with the survey, and every view
// lies inside the payload. The driver holds the memory to a multiple of the input.

#include <cstdlib>
#include <vector>

#include "kind.h"
#include "survey.h"

namespace {

using namespace rekord;

void require(bool holds) {
  if (!holds) std::abort();
}

bool inside(Bytes payload, const void* begin, size_t size) {
  const auto* at = static_cast<const std::byte*>(begin);
  return size == 0 || (at >= payload.data() && size <= payload.size() &&
                       at <= payload.data() + (payload.size() - size));
}

template <class Number>
void copies(const FeatureView& view,
            size_t (*copy)(const FeatureView&, std::span<Number>) noexcept) {
  // One more than there are, and then one less: neither writes more than it should.
  std::vector<Number> room(view.count + 1);
  require(copy(view, room) == view.count);
  if (view.count == 0) return;
  std::vector<Number> tight(view.count - 1);
  require(copy(view, tight) == view.count - 1);
  for (size_t i = 0; i < tight.size(); ++i)
    require(std::bit_cast<std::array<std::byte, sizeof(Number)>>(tight[i]) ==
            std::bit_cast<std::array<std::byte, sizeof(Number)>>(room[i]));
}

struct Sink {
  Bytes payload;
  size_t features = 0;
  size_t open_lists = 0;
  uint32_t oddities = 0;

  void feature(std::string_view key, const FeatureView& view) {
    require(inside(payload, key.data(), key.size()));
    require(is_utf8(std::as_bytes(std::span(key))));
    ++features;
    value(view);
  }
  void begin_steps(std::string_view key) {
    require(inside(payload, key.data(), key.size()));
    require(open_lists++ == 0);
  }
  void step(const FeatureView& view) {
    require(open_lists == 1);
    value(view);
  }
  void end_steps() { require(open_lists-- == 1); }

  void value(const FeatureView& view) {
    oddities |= view.oddities;
    require(view.count <= payload.size());
    for (const Bytes list : *view.lists) require(inside(payload, list.data(), list.size()));
    switch (view.kind) {
      case Kind::unset:
        require(view.count == 0 && view.lists->empty());
        return;
      case Kind::ints:
        return copies<int64_t>(view, copy_ints);
      case Kind::floats:
        return copies<float>(view, copy_floats);
      case Kind::bytes: {
        size_t count = 0;
        for_each_bytes(view, [&](Bytes bytes) {
          require(inside(payload, bytes.data(), bytes.size()));
          ++count;
        });
        require(count == view.count);
      }
    }
  }
};

// Reads the payload one way; true where protobuf would take it.
bool read(Bytes payload, bool sequence) {
  Scratch scratch;
  Sink sink{payload};
  Walk<Sink> walk(payload, sink, scratch);
  const Problem problem = sequence ? walk.sequence() : walk.example();
  require(problem.at <= payload.size());
  require(problem || sink.open_lists == 0);
  require((sink.oddities & ~walk.oddities()) == 0);

  SurveyScratch survey_scratch;
  const Survey surveyed = survey(payload, sequence, survey_scratch);
  require(surveyed.problem.fault == problem.fault && surveyed.problem.at == problem.at);
  require(surveyed.problem.expected == problem.expected && surveyed.problem.found == problem.found);
  require((surveyed.oddities & ~odd::duplicate_key) == walk.oddities());
  require(surveyed.oddities >> odd::kinds == 0);
  for (size_t bit = 0; bit < odd::kinds; ++bit) {
    const std::string_view key = surveyed.features[bit];
    require(key.data() == nullptr || (surveyed.oddities >> bit & 1) != 0);
    require(inside(payload, key.data(), key.size()));
  }
  return !problem;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes payload(reinterpret_cast<const std::byte*>(data), size);
  const bool example = read(payload, false);
  const bool sequence = read(payload, true);
  // What is a SequenceExample is an Example with an unknown field; not the other way round.
  require(example || !sequence);
  switch (recognise(payload)) {
    case PayloadKind::example:
      require(example);
      break;
    case PayloadKind::sequence:
      require(sequence);
      break;
    default:
      break;
  }
  return 0;
}

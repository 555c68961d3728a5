// tf.train.Example and tf.train.SequenceExample, read with protobuf's meaning.
//
//     Example          1: Features
//     SequenceExample  1: Features (context)   2: FeatureLists
//     Features         1: entry { 1: key  2: Feature }        a map: last entry wins
//     FeatureLists     1: entry { 1: key  2: FeatureList }    the same
//     FeatureList      1: Feature (one a step)
//     Feature          1: BytesList | 2: FloatList | 3: Int64List     a oneof
//     a list           1: value, packed in one chunk or several, or unpacked
//
// A walk calls a sink for each feature in the order of the bytes and keeps
// nothing itself, so that its memory does not depend on what a payload claims.
// Where the same bytes mean something else to TensorFlow's own, stricter parser,
// the walk notes it (Odd), and protobuf's meaning is what the sink gets.
#pragma once

#include <string_view>
#include <vector>

#include "wire.h"

namespace rekord {

// The number is the field of Feature that holds the list.
enum class Kind : uint8_t { unset = 0, bytes = 1, floats = 2, ints = 3 };

// Forms that TensorFlow's parser reads differently. A set of bits.
namespace odd {
inline constexpr uint32_t split_list = 1;      // a list in more than one piece
inline constexpr uint32_t two_kinds = 2;       // a Feature with two kinds of list
inline constexpr uint32_t entry_form = 4;      // an entry that is not one key and one value
inline constexpr uint32_t entry_swapped = 8;   // an entry of two fields, not a key and then a value
inline constexpr uint32_t unknown_top = 16;    // unknown fields next to the features: harmless
inline constexpr uint32_t unknown_inner = 32;  // others: inside them, groups, padded tags
inline constexpr uint32_t duplicate_key = 64;  // an entry that a later one replaces (survey.h)
inline constexpr int kinds = 7;                // number of bits
}  // namespace odd

// One Feature after protobuf's merging.
struct FeatureView {
  Kind kind = Kind::unset;
  size_t count = 0;
  // The bodies of its lists, in order. More than one only in odd payloads.
  const std::vector<Bytes>* lists = nullptr;
  uint32_t oddities = 0;
};

// Copies the values of a Feature of the right kind. Never writes more than
// `out` has room for; returns the number of values that had room and bytes.
size_t copy_ints(const FeatureView& feature, std::span<int64_t> out) noexcept;
size_t copy_floats(const FeatureView& feature, std::span<float> out) noexcept;

// Calls `each` with every value of a BytesList that has been checked.
template <class Each>
void for_each_bytes_of(Bytes list, Each&& each) {
  Reader reader(list, list.data());
  Tag tag{};
  Bytes value;
  while (!reader.done()) {
    if (reader.tag(tag)) return;
    if (tag.raw != 0x0a) {
      if (reader.skip(tag)) return;
      continue;
    }
    if (reader.bytes(value)) return;
    each(value);
  }
}

// The same for a Feature of kind `bytes`.
template <class Each>
void for_each_bytes(const FeatureView& feature, Each&& each) {
  for (Bytes list : *feature.lists) for_each_bytes_of(list, each);
}

// What a walk needs besides the bytes; reused, so that a run of records
// allocates nothing.
struct Scratch {
  std::vector<Bytes> values;  // of one map entry
  std::vector<Bytes> lists;   // of one Feature
};

// Reads and checks one Feature given in one or more pieces.
Problem read_feature(const std::vector<Bytes>& pieces, const std::byte* origin, int depth,
                     Scratch& scratch, FeatureView& out);

// One entry of a map. The pieces of its value go to a vector of the caller's.
struct Entry {
  std::string_view key;  // UTF-8
  // Protobuf's Python and C implementation sets an entry with unknown fields
  // aside as a whole; so it counts as unknown here.
  bool known = true;
  uint32_t oddities = 0;
};
Problem read_entry(Bytes bytes, const std::byte* origin, Entry& out, std::vector<Bytes>& values);

template <class Sink>
class Walk {
 public:
  Walk(Bytes payload, Sink& sink, Scratch& scratch) noexcept
      : payload_(payload), sink_(sink), scratch_(scratch) {}

  uint32_t oddities() const noexcept { return oddities_; }

  // The sink needs: void feature(std::string_view key, const FeatureView&).
  Problem example() {
    return fields(payload_, 0, [this](Tag tag, Bytes body) {
      return tag.field == 1 ? features(body) : unknown(odd::unknown_top);
    });
  }

  // The sink needs also: void begin_steps(std::string_view key),
  // void step(const FeatureView&), void end_steps().
  Problem sequence() {
    return fields(payload_, 0, [this](Tag tag, Bytes body) {
      if (tag.field == 1) return features(body);
      return tag.field == 2 ? feature_lists(body) : unknown(odd::unknown_top);
    });
  }

 private:
  // Calls `each` with every LEN field; skips the others.
  template <class Each>
  Problem fields(Bytes message, int depth, Each&& each) {
    Reader reader(message, payload_.data(), depth);
    Tag tag{};
    Bytes body;
    while (!reader.done()) {
      if (Problem problem = reader.tag(tag)) return problem;
      if (tag.padded) unknown(odd::unknown_inner);
      if (tag.wire != Wire::len) {
        // TensorFlow cannot skip a group, not even next to the features.
        unknown(depth == 0 && tag.wire != Wire::sgroup ? odd::unknown_top : odd::unknown_inner);
        if (Problem problem = reader.skip(tag)) return problem;
        continue;
      }
      if (Problem problem = reader.bytes(body)) return problem;
      if (Problem problem = each(tag, body)) return problem;
    }
    return {};
  }

  Problem unknown(uint32_t where) noexcept {
    oddities_ |= where;
    return {};
  }

  Problem features(Bytes message) {
    return fields(message, 1, [this](Tag tag, Bytes bytes) -> Problem {
      if (tag.field != 1) return unknown(odd::unknown_inner);
      Entry entry;
      if (Problem problem = read_entry(bytes, payload_.data(), entry, scratch_.values))
        return problem;
      FeatureView view;
      if (Problem problem = read_feature(scratch_.values, payload_.data(), 3, scratch_, view))
        return problem;
      view.oddities |= entry.oddities;
      oddities_ |= view.oddities;
      if (entry.known) sink_.feature(entry.key, view);
      return {};
    });
  }

  Problem feature_lists(Bytes message) {
    return fields(message, 1, [this](Tag tag, Bytes bytes) -> Problem {
      if (tag.field != 1) return unknown(odd::unknown_inner);
      Entry entry;
      if (Problem problem = read_entry(bytes, payload_.data(), entry, scratch_.values))
        return problem;
      oddities_ |= entry.oddities;
      if (entry.known) sink_.begin_steps(entry.key);
      // A copy, because each step uses the scratch again.
      const std::vector<Bytes> pieces = scratch_.values;
      for (Bytes piece : pieces)
        if (Problem problem = steps(piece, entry.known)) return problem;
      if (entry.known) sink_.end_steps();
      return {};
    });
  }

  Problem steps(Bytes message, bool known) {
    return fields(message, 3, [this, known](Tag tag, Bytes body) -> Problem {
      if (tag.field != 1) return unknown(odd::unknown_inner);
      scratch_.values.assign(1, body);
      FeatureView view;
      if (Problem problem = read_feature(scratch_.values, payload_.data(), 4, scratch_, view))
        return problem;
      oddities_ |= view.oddities;
      if (known) sink_.step(view);
      return {};
    });
  }

  Bytes payload_;
  Sink& sink_;
  Scratch& scratch_;
  uint32_t oddities_ = 0;
};

}  // namespace rekord

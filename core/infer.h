// What the values under each key of many payloads have in common: the evidence
// from which a schema is proposed.
//
//     payload → Walk → one Values a key, of this payload alone → merged when it is done
//
// Merged only then, because a later entry of the same key replaces an earlier one,
// and because a payload that turns out to be refused must leave no trace. Memory
// depends on the keys that were seen, of which there are at most kMostKeys, and
// on the largest payload, never on their number.
#pragma once

#include <array>
#include <limits>
#include <map>
#include <string>

#include "example.h"

namespace rekord {

// The least and the greatest of some values.
template <class Number>
struct Span {
  Number least = std::numeric_limits<Number>::max();
  Number most = std::numeric_limits<Number>::lowest();

  void add(Number value) noexcept {
    if (value < least) least = value;
    if (value > most) most = value;
  }
  void add(const Span& other) noexcept {
    if (other.least < least) least = other.least;
    if (other.most > most) most = other.most;
  }
};

// Features of one kind: their number, and the number of values in each.
struct KindCount {
  uint64_t features = 0;
  Span<uint64_t> values;
};

struct Values {
  std::array<KindCount, 4> kinds;  // by Kind
  Kind first = Kind::unset;        // the first that was set
  Span<int64_t> ints;
  Span<float> floats;  // finite ones
  uint64_t finite = 0;
  uint64_t nan = 0;
  uint64_t infinite = 0;
  uint64_t strings = 0;
  Span<uint64_t> string_bytes;
  // Of all strings. An empty one is UTF-8, but no image.
  bool utf8 = true;
  bool jpeg = true;
  bool png = true;

  void merge(const Values& later) noexcept;
};

// One key over all payloads.
struct KeyFacts {
  uint64_t records = 0;  // that have the key
  Span<uint64_t> steps;  // number of steps, if it is a feature list
  Values values;
  Kind other = Kind::unset;   // the first kind that is not values.first …
  uint64_t other_record = 0;  // … and the payload that had it, counted from 0
};

class Inference {
 public:
  static constexpr size_t kMostKeys = 100'000;
  static constexpr size_t kMostKeyBytes = size_t{16} << 20;

  struct Key {
    KeyFacts facts;
    // Of the payload that is being read.
    Values now;
    uint64_t steps = 0;
    uint64_t stamp = 0;
  };
  // In the byte order of the keys, not in that of the records, which differs
  // from writer to writer and from run to run.
  using Keys = std::map<std::string, Key, std::less<>>;

  explicit Inference(size_t most_keys = kMostKeys, size_t most_key_bytes = kMostKeyBytes) noexcept
      : most_keys_(most_keys), most_key_bytes_(most_key_bytes) {}
  Inference(const Inference&) = delete;  // it points into itself
  Inference& operator=(const Inference&) = delete;

  // Adds what a payload has. Of one that is refused nothing is kept but its keys,
  // whose `records` do not count it.
  Problem add(Bytes payload, bool sequence);

  uint64_t records() const noexcept { return records_; }
  // Whether a payload had a key that there was no room for.
  bool overflowed() const noexcept { return overflowed_; }
  const Keys& context() const noexcept { return context_; }
  const Keys& steps() const noexcept { return steps_; }

  // For Walk.
  void feature(std::string_view key, const FeatureView& view);
  void begin_steps(std::string_view key);
  void step(const FeatureView& view);
  void end_steps() noexcept { list_ = nullptr; }

 private:
  Key* begin(Keys& keys, std::string_view name);
  void observe(const FeatureView& view, const Key& key, Values& out);
  void observe_numbers(const FeatureView& view, Values& out);
  void commit(Key& key, bool is_list) noexcept;

  size_t most_keys_;
  size_t most_key_bytes_;
  size_t key_bytes_ = 0;
  bool overflowed_ = false;
  uint64_t records_ = 0;
  uint64_t stamp_ = 0;
  Keys context_;
  Keys steps_;
  // The keys of the payload that is being read, each once.
  std::vector<Key*> features_now_;
  std::vector<Key*> lists_now_;
  Key* list_ = nullptr;
  Scratch scratch_;
  std::vector<int64_t> ints_;
  std::vector<float> floats_;
};

}  // namespace rekord

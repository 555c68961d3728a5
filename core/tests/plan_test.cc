#include "plan.h"

#include <string>

#include "harness.h"
#include "payloads.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::entry;
using testing::field;
using testing::Padded;
using testing::slot;
using testing::text;

// A Feature that holds one value of `bytes` bytes, in the usual form.
Buffer feature_of(Kind kind, size_t bytes) {
  return field(static_cast<uint64_t>(kind), field(1, Buffer(bytes, std::byte{'v'})));
}

bool matches(const SlotSpec& spec, const Buffer& bytes, size_t& length) {
  const Padded padded(bytes);
  return Header(spec).matches(Bytes(padded).data(), length);
}

std::vector<SlotSpec> slots_of(const std::vector<std::string>& keys) {
  std::vector<SlotSpec> slots;
  for (const std::string& key : keys) slots.push_back(slot(key, Kind::ints));
  return slots;
}

// Whether every key leads to its own slot, and keys that are not there to none.
void check_lookup(const std::vector<std::string>& keys, const std::vector<std::string>& others) {
  const std::vector<SlotSpec> slots = slots_of(keys);
  Lookup lookup;
  lookup.build(slots);
  for (uint32_t i = 0; i < keys.size(); ++i) CHECK_EQ(lookup.find(keys[i], slots), i);
  for (const std::string& other : others) CHECK_EQ(lookup.find(other, slots), Lookup::kNone);
}

TEST(
    "a header is recognised for every kind, every length of a key and of a value that it can "
    "hold") {
  for (const Kind kind : {Kind::bytes, Kind::floats, Kind::ints})
    for (size_t key_bytes = 0; key_bytes <= 70; ++key_bytes) {
      const SlotSpec spec = slot(std::string(key_bytes, 'k'), kind);
      for (const size_t value_bytes : {size_t{0}, size_t{1}, size_t{4}, size_t{50}, size_t{65},
                                       size_t{66}, size_t{119}, size_t{120}, size_t{200}}) {
        const Buffer bytes = entry(spec.key, feature_of(kind, value_bytes));
        // While all lengths fit one byte, and the header fits the words that are compared.
        const bool fits = key_bytes + 8 + value_bytes < 128 && key_bytes + 10 <= kPadding;
        size_t length = 999;
        CHECK_EQ(matches(spec, bytes, length), fits);
        CHECK_EQ(length, fits ? value_bytes : 999);
      }
    }
}

TEST("a header with any bit changed is not recognised as the same value") {
  for (const size_t key_bytes : {0, 1, 5, 6, 7, 8, 9, 13, 16, 17, 20, 23, 24, 25, 40, 53, 54}) {
    std::string key;
    for (size_t i = 0; i < key_bytes; ++i) key += static_cast<char>('A' + i);
    const SlotSpec spec = slot(key, Kind::ints);
    const Buffer good = entry(key, feature_of(Kind::ints, 5));
    size_t same = 0;
    CHECK(matches(spec, good, same));
    for (size_t bit = 0; bit < 8 * Header(spec).size(); ++bit) {
      Buffer bad = good;
      bad[bit / 8] ^= static_cast<std::byte>(1u << (bit % 8));
      size_t length = 0;
      CHECK(!matches(spec, bad, length));
    }
  }
}

TEST("a header does not care about the bytes behind it") {
  const SlotSpec spec = slot("abc", Kind::bytes);
  for (const int behind : {0x00, 0x5a, 0xff}) {
    Buffer bytes = entry("abc", feature_of(Kind::bytes, 2));
    bytes.resize(bytes.size() + kPadding, static_cast<std::byte>(behind));
    size_t length = 0;
    CHECK(Header(spec).matches(bytes.data(), length));
    CHECK_EQ(length, 2u);
  }
}

TEST("the words of a header for a length are those of the bytes that have it") {
  for (size_t key_bytes = 0; key_bytes <= 54; ++key_bytes) {
    const SlotSpec spec = slot(std::string(key_bytes, 'k'), Kind::floats);
    const Header header(spec);
    const Padded padded(entry(spec.key, feature_of(Kind::floats, 8)));
    const std::byte* at = Bytes(padded).data();
    std::array<uint64_t, Header::kMostWords> words{};
    header.expect(8, words);
    for (size_t i = 0; i < header.last_word(); ++i)
      CHECK_EQ(load_le<uint64_t>(at + 8 * i), words[i]);
    const uint64_t last = load_le<uint64_t>(at + 8 * header.last_word());
    CHECK_EQ(last & header.tail_mask(), words[header.last_word()]);
  }
}

TEST("keys of every length are found, and those that are nearly the same are not") {
  std::vector<std::string> keys, others;
  for (size_t bytes = 0; bytes < 100; ++bytes) {
    keys.push_back(std::string(bytes, 'k'));
    others.push_back(std::string(bytes, 'k') + "x");
    if (bytes > 0) others.push_back(std::string(bytes - 1, 'k') + '\0');
  }
  check_lookup(keys, others);
}

TEST("the empty key is a key") {
  check_lookup({"", "a"}, {"b", std::string(1, '\0')});
  check_lookup({""}, {"a"});
}

TEST("the key of an entry that has none is the empty key") {
  const std::vector<SlotSpec> slots = slots_of({"a", ""});
  Lookup lookup;
  lookup.build(slots);
  CHECK_EQ(lookup.find(std::string_view(), slots), 1u);
}

TEST("a plan without slots finds nothing") { check_lookup({}, {"", "a", "image/encoded"}); }

TEST("keys that agree in length, first and last eight bytes are told apart") {
  std::vector<std::string> keys, others;
  for (int i = 0; i < 40; ++i) {
    keys.push_back("features/" + std::to_string(1000 + i) + "/encoded");
    others.push_back("features/" + std::to_string(2000 + i) + "/encoded");
  }
  keys.push_back("label");
  check_lookup(keys, others);
}

TEST("many keys are all found") {
  std::vector<std::string> keys, others;
  for (int i = 0; i < 5000; ++i) {
    keys.push_back("column_" + std::to_string(i));
    others.push_back("Column_" + std::to_string(i));
  }
  check_lookup(keys, others);
}

TEST("a slot's candidate is found in the middle of other bytes") {
  const std::vector<SlotSpec> slots = slots_of({"a", "label", "image/encoded", ""});
  Lookup lookup;
  lookup.build(slots);
  for (uint32_t i = 0; i < slots.size(); ++i) {
    for (const int around : {0x00, 0xff}) {
      Buffer bytes = text(slots[i].key);
      bytes.resize(bytes.size() + 8, static_cast<std::byte>(around));
      CHECK_EQ(lookup.candidate(bytes.data(), slots[i].key.size()), i);
    }
  }
}

}  // namespace
}  // namespace rekord

#include "example.h"

namespace rekord {
namespace {

// Counts the varints of a packed chunk: each ends in a byte below 0x80.
Problem count_packed_ints(Bytes chunk, const std::byte* origin, size_t& count) noexcept {
  size_t run = 0;
  for (const std::byte& byte : chunk) {
    if (++run > 10) return {Fault::varint, static_cast<uint64_t>(&byte - origin) - 10, 0, 0};
    if (std::to_integer<uint8_t>(byte) < 0x80) {
      run = 0;
      ++count;
    }
  }
  if (run != 0)
    return {Fault::varint, static_cast<uint64_t>(chunk.data() + chunk.size() - origin) - run, 0, 0};
  return {};
}

// Checks one list and adds its values to `count`.
Problem count_list(Kind kind, Bytes list, const std::byte* origin, int depth, size_t& count,
                   uint32_t& oddities) noexcept {
  Reader reader(list, origin, depth);
  const Wire single = kind == Kind::floats ? Wire::i32 : Wire::varint;
  size_t chunks = 0;
  bool unpacked = false;
  Tag tag{};
  Bytes body;
  while (!reader.done()) {
    if (Problem problem = reader.tag(tag)) return problem;
    if (tag.padded) oddities |= odd::unknown_inner;
    if (tag.field == 1 && tag.wire == Wire::len) {
      const uint64_t at = reader.offset();
      if (Problem problem = reader.bytes(body)) return problem;
      if (kind == Kind::bytes) {
        ++count;
        continue;
      }
      ++chunks;
      if (kind == Kind::floats) {
        if (body.size() % 4 != 0) return {Fault::packed_floats, at, 4, body.size()};
        count += body.size() / 4;
      } else if (Problem problem = count_packed_ints(body, origin, count)) {
        return problem;
      }
    } else if (tag.field == 1 && kind != Kind::bytes && tag.wire == single) {
      unpacked = true;
      ++count;
      if (Problem problem = reader.skip(tag)) return problem;
    } else {
      oddities |= odd::unknown_inner;
      if (Problem problem = reader.skip(tag)) return problem;
    }
  }
  if (chunks > 1 || (chunks == 1 && unpacked)) oddities |= odd::split_list;
  return {};
}

// Calls `each` with the bytes of every packed chunk and of every unpacked value,
// until it wants no more. The list has been checked.
template <class Each>
void for_each_piece(Bytes list, Wire single, Each&& each) noexcept {
  Reader reader(list, list.data());
  Tag tag{};
  Bytes body;
  while (!reader.done()) {
    if (reader.tag(tag)) return;
    if (tag.field == 1 && tag.wire == Wire::len) {
      if (reader.bytes(body)) return;
      if (!each(body)) return;
    } else if (tag.field == 1 && tag.wire == single) {
      const std::byte* begin = reader.rest().data();
      if (reader.skip(tag)) return;
      if (!each(Bytes(begin, reader.rest().data()))) return;
    } else if (reader.skip(tag)) {
      return;
    }
  }
}

}  // namespace

Problem read_feature(const std::vector<Bytes>& pieces, const std::byte* origin, int depth,
                     Scratch& scratch, FeatureView& out) {
  scratch.lists.clear();
  out = FeatureView{};
  out.lists = &scratch.lists;
  for (Bytes piece : pieces) {
    Reader reader(piece, origin, depth);
    Tag tag{};
    Bytes list;
    while (!reader.done()) {
      if (Problem problem = reader.tag(tag)) return problem;
      if (tag.padded) out.oddities |= odd::unknown_inner;
      if (tag.wire != Wire::len || tag.field > 3) {
        out.oddities |= odd::unknown_inner;
        if (Problem problem = reader.skip(tag)) return problem;
        continue;
      }
      if (Problem problem = reader.bytes(list)) return problem;
      const Kind kind = static_cast<Kind>(tag.field);
      if (out.kind != kind) {
        // A oneof: setting one member clears the other.
        if (out.kind != Kind::unset) out.oddities |= odd::two_kinds;
        scratch.lists.clear();
        out.kind = kind;
        out.count = 0;
      } else {
        out.oddities |= odd::split_list;
      }
      if (Problem problem = count_list(kind, list, origin, depth + 1, out.count, out.oddities))
        return problem;
      scratch.lists.push_back(list);
    }
  }
  return {};
}

Problem read_entry(Bytes bytes, const std::byte* origin, Entry& out, std::vector<Bytes>& values) {
  values.clear();
  out = {};
  Reader reader(bytes, origin, 2);
  Tag tag{};
  Bytes body;
  size_t keys = 0;
  while (!reader.done()) {
    if (Problem problem = reader.tag(tag)) return problem;
    if (tag.padded) out.oddities |= odd::unknown_inner;
    if (tag.wire != Wire::len || tag.field > 2) {
      out.known = false;
      out.oddities |= odd::unknown_inner;
      if (Problem problem = reader.skip(tag)) return problem;
      continue;
    }
    const uint64_t at = reader.offset();
    if (Problem problem = reader.bytes(body)) return problem;
    if (tag.field == 1) {
      if (!is_utf8(body)) return {Fault::key_utf8, at, 0, 0};
      if (!values.empty()) out.oddities |= odd::entry_swapped;
      out.key = as_text(body);
      ++keys;
    } else {
      values.push_back(body);
    }
  }
  // Of Examples TensorFlow takes any two fields; two keys without a value read as protobuf reads
  // them.
  if (keys == 2 && values.empty())
    out.oddities |= odd::entry_swapped;
  else if (keys != 1 || values.size() != 1)
    out.oddities |= odd::entry_form;
  return {};
}

size_t copy_ints(const FeatureView& feature, std::span<int64_t> out) noexcept {
  size_t written = 0;
  for (Bytes list : *feature.lists) {
    for_each_piece(list, Wire::varint, [&](Bytes piece) {
      Reader reader(piece, piece.data());
      while (!reader.done() && written < out.size()) {
        uint64_t value = 0;
        if (reader.varint(value)) return false;
        out[written++] = static_cast<int64_t>(value);
      }
      return written < out.size();
    });
  }
  return written;
}

size_t copy_floats(const FeatureView& feature, std::span<float> out) noexcept {
  size_t written = 0;
  for (Bytes list : *feature.lists) {
    for_each_piece(list, Wire::i32, [&](Bytes piece) {
      for (size_t at = 0; at + 4 <= piece.size() && written < out.size(); at += 4)
        // Bit for bit: a NaN keeps its payload.
        out[written++] = std::bit_cast<float>(load_le<uint32_t>(piece.data() + at));
      return written < out.size();
    });
  }
  return written;
}

}  // namespace rekord

#include "frame.h"

#include "crc32c.h"
#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::framed;
using testing::hex;
using testing::join;
using testing::text;

const Buffer kEmpty = hex("00*8 | 29 03 98 07 | d8 ea 82 a2");
const Buffer kAbc = hex("03 00*7 | b0 99 49 0e | 61 62 63 | 6e 57 f1 21");

struct Scanned {
  Scan scan;
  std::vector<Extent> payloads;
};

Scanned scan_all(const Buffer& bytes, uint64_t more = 0) {
  Scanned result;
  result.scan = scan(bytes, bytes.size() + more, result.payloads);
  return result;
}

// A header whose length is certified by its checksum, whatever follows.
Buffer claim(uint64_t length) {
  Buffer header(kHeaderBytes);
  store_le<uint64_t>(header.data(), length);
  store_le<uint32_t>(header.data() + 8, mask_crc(crc32c_u64(length)));
  return header;
}

Buffer flipped(Buffer bytes, size_t at) {
  bytes.at(at) ^= std::byte{1};
  return bytes;
}

Buffer front(const Buffer& bytes, size_t count) {
  return {bytes.begin(), bytes.begin() + static_cast<Buffer::difference_type>(count)};
}

void check_problem(const Problem& problem, Fault fault, uint64_t at, uint64_t expected,
                   uint64_t found) {
  CHECK_EQ(problem.fault, fault);
  CHECK_EQ(problem.at, at);
  CHECK_EQ(problem.expected, expected);
  CHECK_EQ(problem.found, found);
}

TEST("a frame is written as the known bytes") {
  CHECK_EQ(framed({}), kEmpty);
  CHECK_EQ(framed(text("abc")), kAbc);
}

TEST("a run of frames is scanned to its end and every payload is found") {
  const auto [result, payloads] = scan_all(join({kAbc, kEmpty, kAbc}));
  CHECK_EQ(result.consumed, 54u);
  CHECK_EQ(result.needed, 0u);
  CHECK(!result.problem);
  REQUIRE(payloads.size() == 3);
  CHECK_EQ(payloads[0].offset, 12u);
  CHECK_EQ(payloads[0].length, 3u);
  CHECK_EQ(payloads[1].offset, 31u);
  CHECK_EQ(payloads[1].length, 0u);
  CHECK_EQ(payloads[2].offset, 47u);
  CHECK_EQ(payloads[2].length, 3u);
}

TEST("no bytes at all are no frames and no problem") {
  const auto [result, payloads] = scan_all({});
  CHECK(payloads.empty());
  CHECK_EQ(result.needed, 0u);
  CHECK(!result.problem);
}

TEST("no bytes yet, of a stream that has some, ask for a header") {
  const auto [result, payloads] = scan_all({}, 1);
  CHECK(payloads.empty());
  CHECK_EQ(result.needed, kHeaderBytes);
  CHECK(!result.problem);
}

TEST("a frame that has not all come yet says how many bytes it needs") {
  const Buffer file = join({kAbc, kAbc});
  for (size_t have = 20; have < 38; ++have) {
    const auto [result, payloads] = scan_all(front(file, have), 38 - have);
    CHECK_EQ(payloads.size(), 1u);
    CHECK_EQ(result.consumed, 19u);
    CHECK_EQ(result.needed, have < 31 ? kHeaderBytes : kAbc.size());
    CHECK(!result.problem);
  }
}

TEST("a file that ends inside a header is cut there") {
  for (size_t left = 1; left < kHeaderBytes; ++left) {
    const auto [result, payloads] = scan_all(join({kAbc, front(kAbc, left)}));
    CHECK_EQ(payloads.size(), 1u);
    CHECK_EQ(result.consumed, 19u);
    check_problem(result.problem, Fault::cut_header, 19, kHeaderBytes, left);
  }
}

TEST("a file that ends inside a payload or its checksum is cut there") {
  for (size_t left = kHeaderBytes; left < kAbc.size(); ++left) {
    const auto [result, payloads] = scan_all(join({kAbc, front(kAbc, left)}));
    CHECK_EQ(payloads.size(), 1u);
    check_problem(result.problem, Fault::cut_record, 19, 19, left);
  }
}

TEST("a wrong length checksum ends the scan at its frame") {
  for (size_t at = 0; at < kHeaderBytes; ++at) {
    const auto [result, payloads] = scan_all(join({kEmpty, flipped(kAbc, at), kAbc}));
    CHECK_EQ(payloads.size(), 1u);
    CHECK_EQ(result.consumed, 16u);
    CHECK_EQ(result.problem.fault, Fault::length_crc);
    CHECK_EQ(result.problem.at, 16u);
    CHECK(result.problem.expected != result.problem.found);
    // Nothing can be said about a frame whose length is not to be trusted.
    CHECK_EQ(result.needed, 0u);
  }
  const auto [result, payloads] = scan_all(flipped(kAbc, 8));
  check_problem(result.problem, Fault::length_crc, 0, 0x0e4999b1, 0x0e4999b0);
}

TEST("a wrong payload checksum ends the scan and still gives the length of the frame") {
  for (size_t at = kHeaderBytes; at < kAbc.size(); ++at) {
    const auto [result, payloads] = scan_all(join({kEmpty, flipped(kAbc, at), kAbc}));
    CHECK_EQ(payloads.size(), 1u);
    CHECK_EQ(result.consumed, 16u);
    CHECK_EQ(result.problem.fault, Fault::payload_crc);
    CHECK_EQ(result.problem.at, 16u);
    CHECK_EQ(result.needed, kAbc.size());
  }
  const auto [result, payloads] = scan_all(flipped(kAbc, 15));
  check_problem(result.problem, Fault::payload_crc, 0, 0x21f1576f, 0x21f1576e);
}

TEST("a certified length that no file can hold is impossible, at the front and in the middle") {
  for (const uint64_t length : {uint64_t{1} << 36, uint64_t{1} << 63, ~uint64_t{0},
                                ~uint64_t{0} - 15, ~uint64_t{0} - 16, uint64_t{0x80000000}}) {
    for (const Buffer& before : {Buffer{}, join({kAbc, kEmpty})}) {
      const auto [result, payloads] = scan_all(join({before, claim(length), kAbc}));
      CHECK_EQ(payloads.size(), before.empty() ? 0u : 2u);
      CHECK_EQ(result.consumed, before.size());
      CHECK_EQ(result.needed, 0u);
      check_problem(result.problem, Fault::impossible_length, before.size(), kAbc.size(), length);
    }
  }
}

TEST("a certified length of up to two gigabytes beside too few bytes is a cut record") {
  const auto [result, payloads] = scan_all(claim(0x7fffffff));
  check_problem(result.problem, Fault::cut_record, 0, 0x8000000f, 12);
}

TEST("a length is believed only as far as the stream can reach") {
  const Buffer header = claim(1000);
  // 1,016 bytes are just enough; one less is not.
  CHECK_EQ(scan_all(header, 1004).scan.needed, 1016u);
  CHECK(!scan_all(header, 1004).scan.problem);
  check_problem(scan_all(header, 1003).scan.problem, Fault::cut_record, 0, 1016, 1015);
  // As long as it is not the end of the stream, few bytes are no fault.
  CHECK_EQ(scan_all(front(header, 5), 1).scan.needed, kHeaderBytes);
  CHECK(!scan_all(front(header, 5), 1).scan.problem);
}

TEST("a header agrees with itself or it does not") {
  CHECK(header_agrees(kAbc.data()));
  CHECK(header_agrees(claim(~uint64_t{0}).data()));
  for (size_t at = 0; at < kHeaderBytes; ++at) CHECK(!header_agrees(flipped(kAbc, at).data()));
  CHECK(!header_agrees(hex("00*12").data()));
  CHECK(!header_agrees(hex("ff*12").data()));
}

TEST("the next intact frame is found after any number of other bytes") {
  for (size_t lost = 0; lost < 40; ++lost) {
    const Buffer bytes = join({Buffer(lost, std::byte{0x5a}), kAbc, kEmpty});
    const Resync found = find_frame(bytes, 0, bytes.size());
    CHECK(found.found);
    CHECK_EQ(found.offset, lost);
  }
}

TEST("a search starts where it is told to") {
  const Buffer bytes = join({kAbc, kEmpty, kAbc});
  CHECK_EQ(find_frame(bytes, 0, bytes.size()).offset, 0u);
  CHECK_EQ(find_frame(bytes, 1, bytes.size()).offset, 19u);
  CHECK_EQ(find_frame(bytes, 20, bytes.size()).offset, 35u);
  CHECK(!find_frame(bytes, 36, bytes.size()).found);
  CHECK_EQ(find_frame(bytes, bytes.size(), bytes.size()).offset, bytes.size());
}

TEST("a frame is found only with both checksums") {
  const Buffer bytes = join({hex("00*5"), flipped(kAbc, 13), kEmpty});
  const Resync found = find_frame(bytes, 0, bytes.size());
  CHECK(found.found);
  CHECK_EQ(found.offset, 24u);
}

TEST("a header that claims more than is left is passed over in a search") {
  for (const uint64_t length :
       {uint64_t{100}, uint64_t{1} << 36, uint64_t{1} << 63, ~uint64_t{0}}) {
    const Buffer bytes = join({hex("00*3"), claim(length), kAbc});
    const Resync found = find_frame(bytes, 0, bytes.size());
    CHECK(found.found);
    CHECK_EQ(found.offset, 15u);
  }
}

TEST("a search that needs more bytes says where from and how many") {
  // All of the header and not all of the payload: this place is not ruled out.
  const Buffer cut = join({hex("00*3"), front(kAbc, 17)});
  const Resync candidate = find_frame(cut, 0, cut.size() + 2);
  CHECK(!candidate.found);
  CHECK_EQ(candidate.offset, 3u);
  CHECK_EQ(candidate.needed, 19u);
  // The last eleven bytes could begin a header.
  const Buffer noise(40, std::byte{0x5a});
  const Resync none = find_frame(noise, 0, 1000);
  CHECK(!none.found);
  CHECK_EQ(none.offset, 29u);
  CHECK_EQ(none.needed, kHeaderBytes);
  const Resync few = find_frame(front(noise, 4), 0, 1000);
  CHECK_EQ(few.offset, 0u);
  CHECK_EQ(few.needed, kHeaderBytes);
}

TEST("a search verifies no more bytes in vain than it may") {
  // Headers that all agree, each claiming half of the file: without a limit the
  // search would verify half the file at every twelfth byte.
  Buffer bytes;
  const size_t headers = 2000;
  const Buffer header = claim(headers * kHeaderBytes / 2);
  for (size_t i = 0; i < headers; ++i) bytes.insert(bytes.end(), header.begin(), header.end());
  bytes.insert(bytes.end(), kAbc.begin(), kAbc.end());
  const uint64_t budget = 50'000;
  const Resync limited = find_frame(bytes, 0, bytes.size(), budget);
  CHECK(limited.found);
  CHECK_EQ(limited.offset, headers * kHeaderBytes);
  CHECK(limited.spent <= budget);
  CHECK(find_frame(bytes, 0, bytes.size()).spent > 100 * budget);
}

}  // namespace
}  // namespace rekord

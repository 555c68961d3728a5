#include "gather.h"

#include <vector>

#include "harness.h"

namespace rekord {
namespace {

TEST("pieces come one behind another, in the order given, empty ones and repeated ones too") {
  std::vector<std::byte> source(5000);
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<std::byte>(i * 31);
  const Bytes whole(source);
  std::vector<Bytes> pieces;
  std::vector<std::byte> expected;
  uint64_t noise = 1;
  for (int i = 0; i < 200; ++i) {
    noise = noise * 6364136223846793005u + 1442695040888963407u;
    const size_t begin = (noise >> 33) % source.size();
    const size_t size = (noise >> 50) % (source.size() - begin + 1);
    pieces.push_back(whole.subspan(begin, i % 7 == 0 ? 0 : size));
    expected.insert(expected.end(), pieces.back().begin(), pieces.back().end());
  }
  std::vector<std::byte> out(expected.size());
  CHECK_EQ(gather(pieces, {}, out.data()), pieces.size());
  CHECK(out == expected);
}

TEST("nothing is gathered from no pieces") { CHECK_EQ(gather({}, {}, nullptr), 0u); }

}  // namespace
}  // namespace rekord

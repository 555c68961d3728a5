#include "payload.h"

#include <cstring>
#include <string>

#include "harness.h"

namespace rekord {
namespace {

// A payload in memory with padding after it, as frames have it.
BlockRef stored(Pool& pool, const std::string& payload) {
  BlockRef block = pool.acquire(payload.size() + kPadding);
  std::memcpy(block->data(), payload.data(), payload.size());
  return block;
}

TEST("payloads of every length come back as they are") {
  const auto pool = Pool::create(0, false);
  PayloadDecoder decoder(false, pool);
  for (const size_t same : {0, 5, 16, 17, 5000}) {
    const std::vector<std::string> payloads = {
        std::string(same, 'a'), std::string(same, 'b'), "", "short", std::string(kViewedBytes, 'L'),
        std::string(40, 'm'),   std::string(1, '\0'),
    };
    for (const std::string& payload : payloads) {
      const BlockRef block = stored(*pool, payload);
      CHECK(!decoder.add({block->data(), payload.size()}, block));
    }
    CHECK(!decoder.settle());
    CHECK_EQ(decoder.rows(), payloads.size());
    const Column column = decoder.finish();
    decoder.start();
    CHECK_EQ(column.strings(), payloads.size());
    for (size_t i = 0; i < payloads.size(); ++i) {
      const Bytes found = column.string(i);
      CHECK_EQ(std::string(reinterpret_cast<const char*>(found.data()), found.size()), payloads[i]);
    }
  }
}

TEST("skipped payloads are counted") {
  const auto pool = Pool::create(0, false);
  PayloadDecoder decoder(true, pool);
  const BlockRef block = stored(*pool, "abc");
  for (int i = 0; i < 3; ++i) CHECK(!decoder.add({block->data(), 3}, block));
  CHECK_EQ(decoder.rows(), size_t{3});
  CHECK(decoder.maybe_odd().empty());
  CHECK_EQ(decoder.finish().strings(), size_t{0});
}

}  // namespace
}  // namespace rekord

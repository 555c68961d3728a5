#include "kind.h"

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::hex;
using testing::text;

TEST("payloads are recognised for what they are") {
  struct Row {
    const char* payload;
    PayloadKind kind;
  };
  const Row rows[] = {
      {"", PayloadKind::example},
      {"0a 00", PayloadKind::example},
      {"0a 07 0a 05 0a 01 6d 12 00", PayloadKind::example},
      {"0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 05", PayloadKind::example},
      // Unknown fields beside a feature that holds something do not change what it is.
      {"48 01 0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 05", PayloadKind::example},
      {"12 0e 0a 0c 0a 01 73 12 07 0a 05 1a 03 0a 01 07", PayloadKind::sequence},
      {"0a 07 0a 05 0a 01 63 12 00 12 05 0a 03 0a 01 73", PayloadKind::sequence},
      // Two Examples and a context, each of one feature.
      {"0a 0e 0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 05 | 0a 0e 0a 0c 0a 0a 0a 01 61 12 05 1a 03 "
       "0a 01 06"
       " | 12 0e 0a 0c 0a 0a 0a 01 71 12 05 1a 03 0a 01 07",
       PayloadKind::list_with_context},
      // A version event: wall time, then field 3.
      {"09 00 00 80 d6 f1 2a da 41 1a 0d 62 72 61 69 6e 2e 45 76 65 6e 74 3a 32",
       PayloadKind::event},
      {"09 00*8 10 05 2a 02 0a 00", PayloadKind::event},
      {"09 00*8", PayloadKind::event},
      {"08 96 01", PayloadKind::proto},
      {"08 96 01 12 07 74 65 73 74 69 6e 67", PayloadKind::proto},
      {"ff d8 ff e0 00 10", PayloadKind::other},
      {"00*4", PayloadKind::other},
      {"0a", PayloadKind::text},  // a line feed
      {"0a 05 01", PayloadKind::other},
  };
  for (const auto& [payload, kind] : rows) CHECK_EQ(recognise(hex(payload)), kind);
}

TEST("text is text, and with a control character it is not") {
  CHECK_EQ(recognise(text("hello, world\n")), PayloadKind::text);
  CHECK_EQ(recognise(text("{\"label\": 3}")), PayloadKind::text);
  CHECK_EQ(recognise(text("caf\xc3\xa9")), PayloadKind::text);
  CHECK_EQ(recognise(text("hello\x01world")), PayloadKind::other);
  CHECK_EQ(recognise(text("caf\xe9 au lait")), PayloadKind::other);
}

}  // namespace
}  // namespace rekord

// Runs the tests whose sentence or file contains the argument, or all of them.
//
//     core_tests              core_tests crc32c              core_tests "cut header"

#include <cstdio>
#include <cstring>

#include "harness.h"

int main(int argc, char** argv) {
  const char* wanted = argc > 1 ? argv[1] : "";
  size_t passed = 0, failed = 0;
  // A crash must not swallow the failures that were seen before it.
  std::setvbuf(stdout, nullptr, _IOLBF, 1 << 16);
  for (const rekord::testing::Test& test : rekord::testing::tests()) {
    if (!std::strstr(test.sentence, wanted) && !std::strstr(test.file, wanted)) continue;
    rekord::testing::failed_checks() = 0;
    test.body();
    const size_t checks = rekord::testing::failed_checks();
    if (checks > 0) std::printf("FAILED (%zu checks): %s\n", checks, test.sentence);
    ++(checks > 0 ? failed : passed);
  }
  std::printf("%zu passed, %zu failed\n", passed, failed);
  // A filter that selects nothing proves nothing.
  return failed > 0 || passed == 0 ? 1 : 0;
}

// Whether only portable code runs: for tests of the paths that other CPUs take.
#pragma once

#include <cstdlib>

namespace rekord {

// By the environment variable REKORD_PORTABLE, when an implementation is first chosen.
inline bool portable_only() noexcept { return std::getenv("REKORD_PORTABLE") != nullptr; }

}  // namespace rekord

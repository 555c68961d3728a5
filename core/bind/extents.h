// Where the payloads of one scanned range are. Opaque to Python except for its length.
#pragma once

#include <vector>

#include "frame.h"

namespace rekord {

struct Extents {
  std::vector<Extent> items;
};

}  // namespace rekord

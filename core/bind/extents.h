// Where the payloads of one scanned stretch lie. Opaque to Python but for its length.
#pragma once

#include <vector>

#include "frame.h"

namespace rekord {

struct Extents {
  std::vector<Extent> items;
};

}  // namespace rekord

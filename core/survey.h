// One payload checked from end to end, without keeping its values.
#pragma once

#include <array>

#include "example.h"

namespace rekord {

struct Survey {
  Problem problem;        // why protobuf would refuse the payload
  uint32_t oddities = 0;  // what TensorFlow would read differently (odd::…)
  // For each bit of `oddities`, lowest first, the first feature that has it,
  // if it belongs to one.
  std::array<std::string_view, odd::kinds> features;
};

// Reused from record to record.
struct SurveyScratch {
  Scratch walk;
  std::vector<std::string_view> keys;
  std::vector<std::string_view> step_keys;
};

Survey survey(Bytes payload, bool sequence, SurveyScratch& scratch);

}  // namespace rekord

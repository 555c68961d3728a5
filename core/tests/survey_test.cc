#include "survey.h"

#include <bit>

#include "harness.h"
#include "hex.h"

namespace rekord {
namespace {

using testing::Buffer;
using testing::hex;
using testing::join;

Survey survey_of(const Buffer& payload, bool sequence = false) {
  SurveyScratch scratch;
  return survey(payload, sequence, scratch);
}

std::string_view feature_with(const Survey& result, uint32_t oddity) {
  return result.features[static_cast<size_t>(std::countr_zero(oddity))];
}

TEST("a plain payload has nothing to say") {
  const Buffer payload = hex("0a 0c 0a 0a 0a 01 61 12 05 1a 03 0a 01 05");
  const Survey result = survey_of(payload);
  CHECK(!result.problem);
  CHECK_EQ(result.oddities, 0u);
  for (const std::string_view feature : result.features) CHECK(feature.data() == nullptr);
}

TEST("an oddity names the first feature that has it") {
  const Buffer plain = hex("0a 0c | 0a 0a 0a 01 61 12 05 1a 03 0a 01 05");
  const Buffer split_b = hex("0a 0f | 0a 0d 0a 01 62 12 08 1a 06 0a 01 01 0a 01 02");
  const Buffer split_c = hex("0a 0f | 0a 0d 0a 01 63 12 08 1a 06 0a 01 01 0a 01 02");
  const Buffer payload = join({plain, split_b, split_c});
  const Survey result = survey_of(payload);
  CHECK_EQ(result.oddities, odd::split_list);
  CHECK_EQ(feature_with(result, odd::split_list), "b");
}

TEST("a key that stands twice is named, in context and in steps") {
  const Buffer twice = hex("0a 0e | 0a 05 0a 01 6d 12 00 | 0a 05 0a 01 6d 12 00");
  const Survey example = survey_of(twice);
  CHECK_EQ(example.oddities, odd::duplicate_key);
  CHECK_EQ(feature_with(example, odd::duplicate_key), "m");
  const Buffer steps = hex("12 0e | 0a 05 0a 01 73 12 00 | 0a 05 0a 01 73 12 00");
  const Survey sequence = survey_of(steps, true);
  CHECK_EQ(sequence.oddities, odd::duplicate_key);
  CHECK_EQ(feature_with(sequence, odd::duplicate_key), "s");
  // One key in the context and the same one in the steps are two features.
  const Buffer both = hex("0a 07 0a 05 0a 01 73 12 00 | 12 07 0a 05 0a 01 73 12 00");
  CHECK_EQ(survey_of(both, true).oddities, 0u);
  // An Example has no field 2.
  CHECK_EQ(survey_of(both).oddities, odd::unknown_top);
}

TEST("an oddity of a step belongs to its list") {
  const Buffer payload = hex("12 11 0a 0f 0a 01 73 12 0a 0a 08 1a 06 0a 01 01 0a 01 02");
  const Survey result = survey_of(payload, true);
  CHECK_EQ(result.oddities, odd::split_list);
  CHECK_EQ(feature_with(result, odd::split_list), "s");
}

TEST("a scratch that is used again remembers nothing") {
  SurveyScratch scratch;
  const Buffer one = hex("0a 07 0a 05 0a 01 6d 12 00");
  CHECK_EQ(survey(one, false, scratch).oddities, 0u);
  CHECK_EQ(survey(one, false, scratch).oddities, 0u);
  const Buffer bad = hex("0a 09 0a 07 12 05 12 03 0a 01 00");
  const Survey result = survey(bad, false, scratch);
  CHECK_EQ(result.problem.fault, Fault::packed_floats);
  CHECK_EQ(result.problem.at, 9u);
  CHECK_EQ(survey(one, false, scratch).oddities, 0u);
}

}  // namespace
}  // namespace rekord

#include "survey.h"

#include <algorithm>

namespace rekord {
namespace {

// Notes the feature that an oddity was first seen in.
void note(Survey& result, uint32_t oddities, std::string_view key) noexcept {
  for (int bit = 0; bit < odd::kinds; ++bit)
    if ((oddities >> bit & 1) != 0 && result.features[static_cast<size_t>(bit)].data() == nullptr)
      result.features[static_cast<size_t>(bit)] = key;
}

struct Keys {
  SurveyScratch& scratch;
  Survey& result;

  void feature(std::string_view key, const FeatureView& view) {
    scratch.keys.push_back(key);
    note(result, view.oddities, key);
  }
  void begin_steps(std::string_view key) { scratch.step_keys.push_back(key); }
  void step(const FeatureView& view) noexcept {
    note(result, view.oddities, scratch.step_keys.back());
  }
  void end_steps() noexcept {}
};

// Notes a key that stands twice in one map.
void find_duplicate(std::vector<std::string_view>& keys, Survey& result) {
  std::sort(keys.begin(), keys.end());
  const auto twice = std::adjacent_find(keys.begin(), keys.end());
  if (twice == keys.end()) return;
  result.oddities |= odd::duplicate_key;
  note(result, odd::duplicate_key, *twice);
}

}  // namespace

Survey survey(Bytes payload, bool sequence, SurveyScratch& scratch) {
  scratch.keys.clear();
  scratch.step_keys.clear();
  Survey result;
  Keys keys{scratch, result};
  Walk<Keys> walk(payload, keys, scratch.walk);
  result.problem = sequence ? walk.sequence() : walk.example();
  result.oddities = walk.oddities();
  find_duplicate(scratch.keys, result);
  find_duplicate(scratch.step_keys, result);
  return result;
}

}  // namespace rekord

#include "resample.h"

#include <vector>

#include "harness.h"

namespace rekord {
namespace {

std::vector<uint8_t> noise(size_t count) {
  std::vector<uint8_t> out(count);
  uint32_t state = 1;
  for (uint8_t& one : out)
    one = static_cast<uint8_t>((state = state * 1664525u + 1013904223u) >> 24);
  return out;
}

std::vector<uint8_t> resized(const std::vector<uint8_t>& in, PixelGrid source, PixelBox box,
                             PixelGrid result, const ResampleImplementation& implementation) {
  std::vector<uint8_t> out(result.row_bytes() * result.height);
  CHECK(can_resample(source, box, result));
  resample(in.data(), source, box, out.data(), result, implementation);
  return out;
}

TEST("all implementations of resampling give the same pixels") {
  for (size_t channels = 1; channels <= 4; ++channels)
    for (const size_t width : {1, 2, 5, 17, 64, 201})
      for (const size_t height : {1, 3, 40})
        for (const size_t side : {1, 2, 7, 33}) {
          const PixelGrid source{width, height, channels}, result{side, side + 1, channels};
          const PixelBox box{width * 0.1, 0, width * 0.95, height * 1.0};
          const auto in = noise(source.row_bytes() * height);
          const auto& all = resample_implementations();
          const auto expected = resized(in, source, box, result, all.front());
          for (const auto& one : all) CHECK(resized(in, source, box, result, one) == expected);
        }
}

TEST("a flat image keeps its value in any size") {
  for (const uint8_t value : {0, 1, 127, 255})
    for (const size_t side : {1, 3, 50, 400}) {
      const PixelGrid source{61, 47, 3}, result{side, side, 3};
      const std::vector<uint8_t> in(source.row_bytes() * source.height, value);
      for (const auto& one : resample_implementations())
        for (const uint8_t got : resized(in, source, {0, 0, 61, 47}, result, one))
          CHECK(got == value);
    }
}

TEST("an image of the same size is not changed") {
  const PixelGrid grid{19, 23, 3};
  const auto in = noise(grid.row_bytes() * grid.height);
  for (const auto& one : resample_implementations())
    CHECK(resized(in, grid, {0, 0, 19, 23}, grid, one) == in);
}

TEST("boxes outside of the image are refused") {
  const PixelGrid grid{4, 4, 3};
  for (const PixelBox box :
       {PixelBox{-1, 0, 4, 4}, {0, 0, 5, 4}, {2, 0, 2, 4}, {0, 0, 0.0 / 0.0, 4}})
    CHECK(!can_resample(grid, box, grid));
  CHECK(!can_resample(grid, {0, 0, 4, 4}, {0, 4, 3}));
  CHECK(!can_resample(grid, {0, 0, 4, 4}, {4, 4, 1}));
}

}  // namespace
}  // namespace rekord

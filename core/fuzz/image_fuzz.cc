// A look at an image stays inside its bytes and agrees with itself; pixels come out as the
// plainest reading of PNG's filters gives them.

#include <algorithm>
#include <cstdlib>

#include "image.h"
#include "mask.h"

namespace {

using namespace rekord;

void require(bool holds) {
  if (!holds) std::abort();
}

void look_closely(Bytes data) {
  const ImageFacts first = inspect_image(data, false);
  const ImageFacts whole = inspect_image(data, true);
  require(first.format == whole.format);
  require(whole.at <= data.size() && first.at <= data.size() && whole.end <= data.size());
  if (whole.fault == ImageFault::cut) require(whole.expected > whole.found);
  if (whole.fault == ImageFault::none && whole.format != ImageFormat::tiff) {
    require(whole.end > 0 && whole.width > 0 && whole.height > 0 && whole.channels > 0);
    // What the first bytes say is what a walk to the end says.
    require(first.fault == ImageFault::none);
    require(first.width == whole.width && first.height == whole.height);
    require(first.channels == whole.channels && first.bits == whole.bits);
    // What follows the end does not matter, and without its last byte nothing is whole.
    const ImageFacts exact = inspect_image(data.first(whole.end), true);
    require(exact.fault == ImageFault::none && exact.end == whole.end);
    if (whole.format == ImageFormat::png || whole.format == ImageFormat::jpeg)
      require(inspect_image(data.first(whole.end - 1), true).fault != ImageFault::none);
  }
  uint64_t before = 8;
  for (const PngChunk& chunk : png_chunks(data)) {
    require(chunk.begin == before + 8 && chunk.begin <= chunk.end && chunk.end + 4 <= data.size());
    before = chunk.end + 4;
  }
}

// One byte at a time, from all that has come out so far. Not interlaced, eight bits a sample.
std::vector<uint8_t> plain_pixels(Bytes inflated, size_t rows, size_t row_bytes, size_t pixel) {
  std::vector<uint8_t> out(rows * row_bytes);
  for (size_t row = 0, in = 0; row < rows; ++row) {
    const auto filter = std::to_integer<int>(inflated[in++]);
    for (size_t i = 0; i < row_bytes; ++i, ++in) {
      const size_t here = row * row_bytes + i;
      const int left = i >= pixel ? out[here - pixel] : 0;
      const int above = row > 0 ? out[here - row_bytes] : 0;
      const int corner = row > 0 && i >= pixel ? out[here - row_bytes - pixel] : 0;
      const int sum = left + above - corner;
      const int a = std::abs(sum - left), b = std::abs(sum - above), c = std::abs(sum - corner);
      const int guesses[] = {0, left, above, (left + above) / 2,
                             a <= b && a <= c ? left
                             : b <= c         ? above
                                              : corner};
      out[here] = static_cast<uint8_t>(std::to_integer<int>(inflated[in]) + guesses[filter]);
    }
  }
  return out;
}

void read_pixels(Bytes data) {
  if (data.size() < 4) return;
  const auto at = [&](size_t i) { return std::to_integer<uint32_t>(data[i]); };
  const uint8_t depths[] = {1, 2, 4, 8, 16, 8, 8, 3};
  const PixelForm form{at(0), at(1) % 64, depths[at(2) % 8], static_cast<uint8_t>(at(3) % 6),
                       at(3) >= 128};
  const Bytes inflated = data.subspan(4);
  const uint64_t needed = inflated_bytes(form);
  const size_t pixels = size_t{form.width} * form.height, wide = form.bits == 16 ? 2 : 1;
  std::vector<std::byte> out(needed > 0 && needed <= inflated.size() ? pixels * form.channels * wide
                                                                     : 0);
  const PixelFault fault = copy_pixels(inflated, form, out);
  require((fault == PixelFault::form) == (needed == 0));
  require(needed == 0 || (fault == PixelFault::cut) == (needed > inflated.size()));
  if (fault != PixelFault::none) return;
  if (form.bits == 8 && !form.interlaced) {
    const size_t row_bytes = size_t{form.width} * form.channels;
    const auto expected = plain_pixels(inflated, form.height, row_bytes, form.channels);
    require(
        std::equal(out.begin(), out.end(), reinterpret_cast<const std::byte*>(expected.data())));
  }
  if (form.channels != 1) return;
  std::vector<int64_t> counts(form.bits == 16 ? 65536 : 256);
  require(count_pixels(inflated, form, counts) == PixelFault::none);
  const auto value_at = [&](size_t i) {
    uint32_t value = 0;
    for (size_t k = 0; k < wide; ++k)
      value = value << 8 | std::to_integer<uint32_t>(out[i * wide + k]);
    return value;
  };
  for (size_t i = 0; i < pixels; ++i) --counts[value_at(i)];
  require(std::all_of(counts.begin(), counts.end(), [](int64_t left) { return left == 0; }));
  // All values but that of the last pixel are allowed: the first that has it is found.
  const uint32_t wanted = value_at(pixels - 1);
  std::vector<std::byte> allowed(counts.size(), std::byte{1});
  allowed[wanted] = std::byte{0};
  size_t first = 0;
  while (value_at(first) != wanted) ++first;
  const FoundPixel found = find_pixel(inflated, form, allowed);
  require(found.found && found.value == wanted);
  require(size_t{found.row} * form.width + found.column == first);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Bytes bytes(reinterpret_cast<const std::byte*>(data), size);
  look_closely(bytes);
  read_pixels(bytes);
  return 0;
}

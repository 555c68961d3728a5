#include "order.h"

#include <algorithm>
#include <array>
#include <bit>

namespace rekord {
namespace {

// splitmix64: one step of a generator whose every step scatters all bits.
uint64_t scatter(uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

constexpr uint64_t mask(int bits) noexcept { return (uint64_t{1} << bits) - 1; }

// Small networks need more rounds: with few bits a half is a handful of values.
constexpr uint64_t kSmall = uint64_t{1} << 16;
constexpr int kRounds = 6;

}  // namespace

uint64_t order_key(std::span<const uint64_t> words) noexcept {
  uint64_t key = words.size();
  for (const uint64_t word : words) key = scatter(key ^ scatter(word));
  return key;
}

Permutation::Permutation(uint64_t n, uint64_t key) noexcept
    : n_(std::max<uint64_t>(n, 1)), rounds_(n < kSmall ? kMostRounds : kRounds) {
  const int bits = std::max(2, static_cast<int>(std::bit_width(n_ - 1)));
  const int left_bits = bits / 2;
  right_bits_ = bits - left_bits;
  left_mask_ = mask(left_bits);
  right_mask_ = mask(right_bits_);
  for (int i = 0; i < rounds_; ++i) keys_[i] = scatter(key + static_cast<uint64_t>(i));
}

uint64_t Permutation::forth(uint64_t x) const noexcept {
  uint64_t left = x >> right_bits_, right = x & right_mask_;
  for (int i = 0; i < rounds_; i += 2) {
    left ^= scatter(right ^ keys_[i]) & left_mask_;
    right ^= scatter(left ^ keys_[i + 1]) & right_mask_;
  }
  return left << right_bits_ | right;
}

uint64_t Permutation::back(uint64_t x) const noexcept {
  uint64_t left = x >> right_bits_, right = x & right_mask_;
  for (int i = rounds_ - 2; i >= 0; i -= 2) {
    right ^= scatter(left ^ keys_[i + 1]) & right_mask_;
    left ^= scatter(right ^ keys_[i]) & left_mask_;
  }
  return left << right_bits_ | right;
}

uint64_t Permutation::operator()(uint64_t position) const noexcept {
  do {
    position = forth(position);
  } while (position >= n_);
  return position;
}

uint64_t Permutation::position_of(uint64_t value) const noexcept {
  do {
    value = back(value);
  } while (value >= n_);
  return value;
}

BlockOrder::BlockOrder(uint64_t n, uint64_t block, uint64_t window, uint64_t lanes,
                       uint64_t key) noexcept
    : n_(n),
      block_(std::clamp<uint64_t>(block, 1, std::max<uint64_t>(n, 1))),
      window_(block_ * std::clamp<uint64_t>(window, 1, uint64_t{1} << 20)),
      lanes_(std::max<uint64_t>(lanes, 1)),
      key_(key),
      blocks_((n_ + block_ - 1) / block_, key) {
  const uint64_t count = (n_ + block_ - 1) / block_;
  last_place_ = count == 0 ? 0 : blocks_.position_of(count - 1);
  last_size_ = count == 0 ? 0 : n_ - (count - 1) * block_;
}

uint64_t BlockOrder::at(uint64_t place) const noexcept {
  // Every block before the shorter one is full, and so is every one behind it.
  const uint64_t last_begin = last_place_ * block_;
  if (place >= last_begin && place < last_begin + last_size_)
    return blocks_(last_place_) * block_ + (place - last_begin);
  if (place < last_begin) return blocks_(place / block_) * block_ + place % block_;
  const uint64_t behind = place - last_begin - last_size_;
  return blocks_(last_place_ + 1 + behind / block_) * block_ + behind % block_;
}

uint64_t BlockOrder::operator()(uint64_t position) noexcept {
  const uint64_t lane = position % lanes_, index = position / lanes_;
  // Lane l has a record for each position p with p mod lanes = l: the first ones have one more.
  const uint64_t whole = n_ / lanes_, longer = n_ % lanes_;
  const uint64_t begin = lane * whole + std::min(lane, longer);
  const uint64_t size = whole + (lane < longer ? 1 : 0);
  const uint64_t window = index / window_, window_begin = window * window_;
  if (lane != lane_ || window != number_) {
    const std::array<uint64_t, 3> words{key_, lane, window};
    inside_ = Permutation(std::min(window_, size - window_begin), order_key(words));
    lane_ = lane;
    number_ = window;
  }
  return at(begin + window_begin + inside_(index - window_begin));
}

}  // namespace rekord

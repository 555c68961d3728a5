// The order of an epoch, computed and not stored: which record is at a position.
//
// A keyed permutation of [0, n) is a Feistel network on exactly as many bits as n - 1 has,
// repeated until the result is below n:
//
//     x = left | right         two halves, the right one a bit longer if the number is odd
//     left  ^= scatter(right)  then  right ^= scatter(left)  then again, a dozen times
//
// Each round is invertible, so no two positions collide, whatever `scatter` does. Fewer
// than two steps are needed on average, since n is more than half of 2^bits.
#pragma once

#include <cstdint>
#include <span>

namespace rekord {

// A key derived from several words, such as a seed and an epoch.
uint64_t order_key(std::span<const uint64_t> words) noexcept;

class Permutation {
 public:
  // Of [0, n), n from 1 to 2^62.
  Permutation(uint64_t n, uint64_t key) noexcept;

  uint64_t operator()(uint64_t position) const noexcept;
  // The position of a value.
  uint64_t position_of(uint64_t value) const noexcept;

 private:
  static constexpr int kMostRounds = 12;

  uint64_t forth(uint64_t x) const noexcept;
  uint64_t back(uint64_t x) const noexcept;

  uint64_t n_;
  int rounds_;
  int right_bits_;
  uint64_t left_mask_;
  uint64_t right_mask_;
  uint64_t keys_[kMostRounds];
};

// An order for storage that reads neighbours cheaply: remote or spinning.
//
//     records   |block 0|block 1|block 2|…      blocks of `block` records, the last one shorter
//     shuffled  |block 7|block 2|block 5|…      in a random order
//     lanes     |---- lane 0 ----|-- lane 1 …   divided into as many parts as there were ranks
//     windows   records permuted inside each `window` blocks of a lane
//
// Position p is the (p div lanes)-th record of lane p mod lanes. It is a permutation of
// all records, whatever the numbers are.
class BlockOrder {
 public:
  BlockOrder(uint64_t n, uint64_t block, uint64_t window, uint64_t lanes, uint64_t key) noexcept;

  uint64_t operator()(uint64_t position) noexcept;

 private:
  // The record at a place of the sequence of shuffled blocks.
  uint64_t at(uint64_t place) const noexcept;

  uint64_t n_;
  uint64_t block_;
  uint64_t window_;  // in records
  uint64_t lanes_;
  uint64_t key_;
  Permutation blocks_;
  uint64_t last_place_;  // the position of the last block, which may be shorter, among the others
  uint64_t last_size_;
  // The window of the previous position: its neighbours are in the same one.
  uint64_t lane_ = ~uint64_t{0};
  uint64_t number_ = 0;
  Permutation inside_{1, 0};
};

}  // namespace rekord

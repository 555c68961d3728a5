// Copies out of mapped files that survive the file being cut.
//
// A page of a mapping that the file no longer reaches, or that the disk cannot deliver,
// answers a read with SIGBUS, which ends the process. While a GuardedReads lives, such a
// fault in one of its mappings puts a page of zeros in the place of the lost one and is
// remembered; the copy runs to its end and reports that it failed.
//
//     file     |#########|#########|####     cut here
//     mapping  |  page   |  page   |  page   |  page   |
//                                  [zeros after the end][SIGBUS -> page of zeros]
//
// The handler returns normally: no stack frame is skipped, and another handler
// that called ours is not interrupted. Every other fault goes to the handler
// that was installed before ours; if that is the default, the process ends as it
// would without us.
#pragma once

#include <atomic>
#include <csignal>
#include <cstring>
#include <span>

#include "bytes.h"

namespace rekord {

// Installs the handler, or installs it again if it was replaced: to be called
// before every series of copies, since a framework may be loaded at any time. False
// if it cannot be installed; mapped files must not be read then.
bool install_sigbus_guard() noexcept;

// While it lives, faults of this thread in any of these mappings are survived. Cannot be
// nested; the span stays the caller's.
class GuardedReads {
 public:
  explicit GuardedReads(std::span<const Bytes> mappings) noexcept;
  ~GuardedReads();
  GuardedReads(const GuardedReads&) = delete;
  GuardedReads& operator=(const GuardedReads&) = delete;

  // Copies bytes, of a mapping or not. False where some that were copied so far could not
  // be read: what `to` holds is worthless then, and so is the mapping, which has a page
  // that is not of the file.
  bool copy(Bytes from, std::byte* to) noexcept {
    // A lost page costs a fault, so a long copy checks now and then whether to continue.
    for (; from.size() > kStrideBytes && !has_lost();
         to += kStrideBytes, from = from.subspan(kStrideBytes))
      copy_some(from.first(kStrideBytes), to);
    if (!from.empty()) copy_some(from, to);
    return !has_lost();
  }

 private:
  static constexpr size_t kStrideBytes = 1 << 20;

  // The handler runs on this thread: only the compiler must keep the order.
  static void copy_some(Bytes from, std::byte* to) noexcept {
    std::atomic_signal_fence(std::memory_order_seq_cst);
    std::memcpy(to, from.data(), from.size());
    std::atomic_signal_fence(std::memory_order_seq_cst);
  }
  bool has_lost() const noexcept { return lost_->load(std::memory_order_relaxed); }

  const std::atomic<bool>* lost_;
  sigset_t mask_before_;
};

}  // namespace rekord

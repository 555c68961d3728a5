#include "sigbus_guard.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <mutex>

// A thread-local variable of a library that Python loads is allocated by glibc when a
// thread first uses it, with malloc, which a signal handler must not call. This model
// takes it from memory that every thread has. musl refuses it, and has no such delay.
#if defined(__GLIBC__)
#define REKORD_TLS [[gnu::tls_model("initial-exec")]] constinit thread_local
#else
#define REKORD_TLS constinit thread_local
#endif

namespace rekord {
namespace {

// macOS answers with either of them.
#if defined(__APPLE__)
constexpr int kSignals[] = {SIGBUS, SIGSEGV};
#else
constexpr int kSignals[] = {SIGBUS};
#endif
constexpr size_t kSignalCount = std::size(kSignals);

// Handlers that were found in our place so far. One that is found again is the same.
struct Earlier {
  struct sigaction action;
  int below;  // whom this one calls where it calls us: the one found before it; 0 for nobody
};
constexpr int kMostEarlier = 16;

struct Chain {
  Earlier earlier[kMostEarlier];  // never changed once `top` or a `below` names it; [0] is not used
  int count = 1;
  std::atomic<int> top{0};
};

struct ThisThread {
  // What is being copied from.
  std::atomic<const Bytes*> mappings{nullptr};
  std::atomic<size_t> mapping_count{0};
  std::atomic<bool> has_lost{false};
  // The earlier handler that is running, so that one that calls us is not called again.
  int running[kSignalCount] = {};
};

REKORD_TLS ThisThread this_thread;
Chain chains[kSignalCount];
std::mutex installing;
std::atomic<uintptr_t> page_bytes{0};

static_assert(std::atomic<const Bytes*>::is_always_lock_free &&
              std::atomic<size_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

size_t slot_of(int signal) noexcept {
  return static_cast<size_t>(std::find(kSignals, kSignals + kSignalCount, signal) - kSignals);
}

// Whether the instruction that was interrupted caused the signal. Others are sent by
// kill and raise, or tell of a memory error somewhere (BUS_MCEERR_AO).
bool is_fault(const siginfo_t* info) noexcept {
#if defined(SI_KERNEL)
  if (info->si_code == SI_KERNEL) return true;
#endif
  return info->si_code >= 1 && info->si_code <= 4;
}

bool is_mapped_for_us(uintptr_t page) noexcept {
  const Bytes* const mappings = this_thread.mappings.load(std::memory_order_relaxed);
  for (size_t i = 0; i < this_thread.mapping_count.load(std::memory_order_relaxed); ++i) {
    const auto begin = reinterpret_cast<uintptr_t>(mappings[i].data());  // of a page
    if (page >= begin && page - begin < mappings[i].size()) return true;
  }
  return false;
}

bool put_zeros(const siginfo_t* info) noexcept {
  if (!is_fault(info)) return false;
  const uintptr_t size = page_bytes.load(std::memory_order_relaxed);
  const uintptr_t page = reinterpret_cast<uintptr_t>(info->si_addr) & ~(size - 1);
  if (!is_mapped_for_us(page)) return false;
  void* const put = mmap(reinterpret_cast<void*>(page), size, PROT_READ,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (put == MAP_FAILED) return false;
  this_thread.has_lost.store(true, std::memory_order_relaxed);
  return true;
}

// As if there were no handler.
void end_process(int signal, const siginfo_t* info) noexcept {
  struct sigaction fallback{};
  fallback.sa_handler = SIG_DFL;
  sigemptyset(&fallback.sa_mask);
  sigaction(signal, &fallback, nullptr);
  if (is_fault(info)) return;  // the instruction runs again, and ends the process where it is
  sigset_t mask;
  sigemptyset(&mask);
  sigaddset(&mask, signal);
  pthread_sigmask(SIG_UNBLOCK, &mask, nullptr);
  raise(signal);
}

void call(const struct sigaction& action, int signal, siginfo_t* info, void* context) noexcept {
  if ((action.sa_flags & SA_RESETHAND) != 0) {
    struct sigaction fallback{};
    fallback.sa_handler = SIG_DFL;
    sigemptyset(&fallback.sa_mask);
    sigaction(signal, &fallback, nullptr);
  }
  sigset_t mask = action.sa_mask, before;
  if ((action.sa_flags & SA_NODEFER) == 0) sigaddset(&mask, signal);
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  if ((action.sa_flags & SA_SIGINFO) != 0) {
    action.sa_sigaction(signal, info, context);
  } else {
    action.sa_handler(signal);
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void pass_on(int signal, siginfo_t* info, void* context) noexcept {
  const size_t slot = slot_of(signal);
  if (slot == kSignalCount) return;
  const Chain& chain = chains[slot];
  int& running = this_thread.running[slot];
  const int caller = running;
  const int next =
      caller == 0 ? chain.top.load(std::memory_order_acquire) : chain.earlier[caller].below;
  if (next == 0) return end_process(signal, info);
  const struct sigaction& action = chain.earlier[next].action;
  const bool has_info = (action.sa_flags & SA_SIGINFO) != 0;
  if (!has_info && action.sa_handler == SIG_DFL) return end_process(signal, info);
  // The system ends a process that ignores a fault; what is sent can be ignored.
  if (!has_info && action.sa_handler == SIG_IGN)
    return is_fault(info) ? end_process(signal, info) : void();
  running = next;
  call(action, signal, info, context);
  running = caller;
}

void on_signal(int signal, siginfo_t* info, void* context) {
  const int errno_before = errno;
  if (!put_zeros(info)) pass_on(signal, info, context);
  errno = errno_before;
}

bool is_ours(const struct sigaction& action) noexcept {
  return (action.sa_flags & SA_SIGINFO) != 0 && action.sa_sigaction == on_signal;
}

bool is_same(const struct sigaction& a, const struct sigaction& b) noexcept {
  if (a.sa_flags != b.sa_flags) return false;
  return (a.sa_flags & SA_SIGINFO) != 0 ? a.sa_sigaction == b.sa_sigaction
                                        : a.sa_handler == b.sa_handler;
}

// The number of a handler that was found in our place; 0 where there is no room for it.
int number_of(Chain& chain, const struct sigaction& action) noexcept {
  for (int i = 1; i < chain.count; ++i)
    if (is_same(chain.earlier[i].action, action)) return i;
  if (chain.count == kMostEarlier) return 0;
  chain.earlier[chain.count] = {action, chain.top.load(std::memory_order_relaxed)};
  return chain.count++;
}

bool install(size_t slot) noexcept {
  struct sigaction current{};
  if (sigaction(kSignals[slot], nullptr, &current) != 0) return false;
  if (is_ours(current)) return true;
  const std::lock_guard lock(installing);
  if (sigaction(kSignals[slot], nullptr, &current) != 0) return false;
  if (is_ours(current)) return true;
  const int number = number_of(chains[slot], current);
  if (number == 0) return false;
  // Before ours is installed: it may be needed at once.
  chains[slot].top.store(number, std::memory_order_release);
  struct sigaction action{};
  action.sa_sigaction = on_signal;
  sigemptyset(&action.sa_mask);
  // Not deferred: a handler that we call may raise the signal again to end the process,
  // and expects that to happen at once. On the stack that others may need for theirs.
  action.sa_flags = SA_SIGINFO | SA_NODEFER | SA_ONSTACK | (current.sa_flags & SA_RESTART);
  return sigaction(kSignals[slot], &action, nullptr) == 0;
}

}  // namespace

bool install_sigbus_guard() noexcept {
  if (page_bytes.load(std::memory_order_relaxed) == 0) {
    const long found = sysconf(_SC_PAGESIZE);
    if (found <= 0) return false;
    page_bytes.store(static_cast<uintptr_t>(found), std::memory_order_relaxed);
  }
  for (size_t slot = 0; slot < kSignalCount; ++slot) {
    // A handler that was left with longjmp has not come back to tell that it ended.
    this_thread.running[slot] = 0;
    if (!install(slot)) return false;
  }
  return true;
}

GuardedReads::GuardedReads(std::span<const Bytes> mappings) noexcept
    : lost_(&this_thread.has_lost) {
  // A fault whose signal is blocked ends the process, whatever the handler.
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : kSignals) sigaddset(&mask, signal);
  pthread_sigmask(SIG_UNBLOCK, &mask, &mask_before_);
  this_thread.has_lost.store(false, std::memory_order_relaxed);
  this_thread.mappings.store(mappings.data(), std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  this_thread.mapping_count.store(mappings.size(), std::memory_order_relaxed);
}

GuardedReads::~GuardedReads() {
  this_thread.mapping_count.store(0, std::memory_order_relaxed);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  for (const int signal : kSignals) {
    if (sigismember(&mask_before_, signal) != 1) continue;
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    return;
  }
}

}  // namespace rekord

#include "sigbus_guard.h"

#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csetjmp>
#include <cstdlib>
#include <thread>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

size_t page_bytes() { return static_cast<size_t>(sysconf(_SC_PAGESIZE)); }

// A mapped file of several pages, each byte its offset, that can be cut.
class Mapped {
 public:
  explicit Mapped(size_t pages) : size_(pages * page_bytes()) {
    char name[] = "/tmp/rekord-guard-XXXXXX";
    descriptor_ = mkstemp(name);
    unlink(name);
    std::vector<std::byte> content(size_);
    for (size_t i = 0; i < size_; ++i) content[i] = value(i);
    [[maybe_unused]] const ssize_t written = write(descriptor_, content.data(), size_);
    data_ = static_cast<std::byte*>(mmap(nullptr, size_, PROT_READ, MAP_SHARED, descriptor_, 0));
  }
  ~Mapped() {
    munmap(data_, size_);
    close(descriptor_);
  }

  static std::byte value(size_t i) { return static_cast<std::byte>(i * 7 + i / 4096); }
  Bytes bytes() const { return {data_, size_}; }
  void cut(size_t size) {
    [[maybe_unused]] const int failed = ftruncate(descriptor_, static_cast<off_t>(size));
  }

 private:
  size_t size_;
  int descriptor_;
  std::byte* data_;
};

bool copies(const Mapped& file, size_t begin, size_t count, std::vector<std::byte>& to) {
  to.resize(count);
  const Bytes mapping = file.bytes();
  return install_sigbus_guard() &&
         GuardedReads({&mapping, 1}).copy(mapping.subspan(begin, count), to.data());
}

bool copies(const Mapped& file, size_t begin, size_t count) {
  std::vector<std::byte> to;
  return copies(file, begin, count, to);
}

bool copies(const Mapped& file) { return copies(file, 0, file.bytes().size()); }

// What a process ends with that does this: the signal that ended it, or 1000 + its status.
// The handler of the address sanitizer is taken away, since it turns signals into a status.
template <class Body>
int end_of(Body body) {
  const pid_t child = fork();
  if (child == 0) {
    struct sigaction fallback{};
    fallback.sa_handler = SIG_DFL;
    sigaction(SIGBUS, &fallback, nullptr);
    sigaction(SIGSEGV, &fallback, nullptr);
    body();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 1000 + WEXITSTATUS(status);
}

// Reads past the end of a file with no guard, as other code of a process might.
void fault() {
  Mapped file(2);
  file.cut(0);
  static_cast<void>(*const_cast<const volatile std::byte*>(file.bytes().data()));
}

void install(void (*handler)(int, siginfo_t*, void*), int flags = 0) {
  struct sigaction action{};
  action.sa_sigaction = handler;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_SIGINFO | flags;
  sigaction(SIGBUS, &action, nullptr);
}

struct sigaction called_next{};
int calls = 0;

// As crash reporters do: count, then leave it to whoever was there before.
void chaining(int signal, siginfo_t* info, void* context) {
  if (++calls > 3) _exit(77);
  if ((called_next.sa_flags & SA_SIGINFO) != 0) {
    called_next.sa_sigaction(signal, info, context);
  } else {
    std::signal(signal, SIG_DFL);
  }
}

void install_chaining() {
  sigaction(SIGBUS, nullptr, &called_next);
  install(chaining);
}

void leaving(int, siginfo_t*, void*) { _exit(7); }
void counting(int, siginfo_t*, void*) { ++calls; }

TEST("bytes of a whole file are copied") {
  Mapped file(3);
  std::vector<std::byte> out;
  REQUIRE(copies(file, 0, 3 * page_bytes(), out));
  bool same = true;
  for (size_t i = 0; i < out.size(); ++i) same = same && out[i] == Mapped::value(i);
  CHECK(same);
  CHECK(copies(file, 5, 0));
}

TEST("a copy of what was cut off fails, and one of what is left does not") {
  const size_t page = page_bytes();
  Mapped file(8);
  file.cut(3 * page);
  // Each of another page: what was replaced is no fault any more.
  CHECK(!copies(file, 4 * page, 1));
  CHECK(!copies(file, 7 * page + 5, page - 5));
  CHECK(!copies(file, 3 * page - 1, 2));
  CHECK(!copies(file));
  std::vector<std::byte> out;
  REQUIRE(copies(file, 0, 3 * page, out));
  CHECK(out[3 * page - 1] == Mapped::value(3 * page - 1));
}

TEST("bytes outside of the mappings are copied, and faults there are not ours") {
  std::vector<std::byte> from(100, std::byte{3}), to(100);
  REQUIRE(install_sigbus_guard());
  CHECK(GuardedReads({}).copy(from, to.data()));
  CHECK(to == from);
  CHECK_EQ(end_of([&] {
             Mapped guarded(1), other(1);
             other.cut(0);
             const Bytes mapping = guarded.bytes();
             install_sigbus_guard();
             GuardedReads({&mapping, 1}).copy(other.bytes().first(100), to.data());
           }),
           SIGBUS);
}

TEST("another file is copied after a fault in one") {
  Mapped cut(4), whole(4);
  cut.cut(0);
  CHECK(!copies(cut));
  CHECK(copies(whole));
}

TEST("a long copy ends soon after the first page that is lost") {
  // Each lost page costs a fault, and pages that were not touched are not replaced.
  const size_t page = page_bytes();
  Mapped file((4 << 20) / page);
  file.cut(0);
  CHECK(!copies(file));
  file.cut(4 << 20);
  CHECK(copies(file, (4 << 20) - page, page));  // of the file again
}

TEST("every thread has its own faults") {
  Mapped cut(64), whole(64);
  cut.cut(0);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 16; ++i) {
        // Each page is read by one thread only: a page that was replaced is no fault any more.
        if (copies(cut, (t * 16 + i) * page_bytes(), 100)) ++wrong;
        if (!copies(whole)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK_EQ(wrong.load(), 0);
}

TEST("a fault is survived where the signal is blocked, and it stays blocked") {
  Mapped file(1);
  file.cut(0);
  sigset_t mask, before, after;
  sigemptyset(&mask);
  sigaddset(&mask, SIGBUS);
  pthread_sigmask(SIG_BLOCK, &mask, &before);
  CHECK(!copies(file));
  pthread_sigmask(SIG_SETMASK, &before, &after);
  CHECK_EQ(sigismember(&after, SIGBUS), 1);
}

TEST("a fault of other code ends the process by the signal") {
  CHECK_EQ(end_of([] { fault(); }), SIGBUS);
  CHECK_EQ(end_of([] {
             install_sigbus_guard();
             fault();
           }),
           SIGBUS);
  CHECK_EQ(end_of([] {
             Mapped file(1);
             copies(file);
             fault();
           }),
           SIGBUS);
  CHECK_EQ(end_of([] {  // also after one that was survived
             Mapped file(1);
             file.cut(0);
             if (copies(file)) _exit(1);
             fault();
           }),
           SIGBUS);
}

TEST("a signal that is sent ends the process, unless it is ignored") {
  CHECK_EQ(end_of([] {
             install_sigbus_guard();
             raise(SIGBUS);
           }),
           SIGBUS);
  CHECK_EQ(end_of([] {
             std::signal(SIGBUS, SIG_IGN);
             install_sigbus_guard();
             raise(SIGBUS);
           }),
           1000);
  CHECK_EQ(end_of([] {
             std::signal(SIGBUS, SIG_IGN);
             install_sigbus_guard();
             fault();
           }),
           SIGBUS);
}

TEST("a handler that was there before gets what is not ours") {
  CHECK_EQ(end_of([] {
             install(leaving);
             install_sigbus_guard();
             fault();
           }),
           1007);
  CHECK_EQ(end_of([] {
             install(counting);
             install_sigbus_guard();
             raise(SIGBUS);
             raise(SIGBUS);
             _exit(calls);
           }),
           1002);
  CHECK_EQ(end_of([] {
             install(counting, static_cast<int>(SA_RESETHAND));
             install_sigbus_guard();
             raise(SIGBUS);
             if (calls == 1) raise(SIGBUS);
           }),
           SIGBUS);
}

TEST("a handler that replaced ours is called, and ours is installed again") {
  CHECK_EQ(end_of([] {
             install_sigbus_guard();
             install(counting);
             Mapped file(1);
             file.cut(0);
             if (copies(file)) _exit(50);
             raise(SIGBUS);
             _exit(calls);
           }),
           1001);
}

TEST("a handler that calls ours in turn is called once") {
  CHECK_EQ(end_of([] {
             install_sigbus_guard();
             install_chaining();
             install_sigbus_guard();
             fault();
           }),
           SIGBUS);
  CHECK_EQ(end_of([] {
             install(leaving);
             install_sigbus_guard();
             install_chaining();
             install_sigbus_guard();
             fault();  // ours, then the chaining one, then ours, then the first one
           }),
           1007);
}

TEST("a fault is survived where another handler stands before ours and calls it") {
  CHECK_EQ(end_of([] {
             Mapped file(1);
             install_sigbus_guard();
             install_chaining();
             file.cut(0);
             std::byte out;
             const Bytes mapping = file.bytes();
             // Not installed again: as if it had been replaced during the copy.
             if (GuardedReads({&mapping, 1}).copy(mapping.first(1), &out)) _exit(50);
             _exit(calls);
           }),
           1001);
}

sigjmp_buf back;
void jumping(int, siginfo_t*, void*) { siglongjmp(back, 1); }

TEST("a handler that jumps out is called again the next time") {
  CHECK_EQ(end_of([] {
             install(jumping, SA_NODEFER);
             for (volatile int i = 0; i < 3; i = i + 1) {
               install_sigbus_guard();
               if (sigsetjmp(back, 1) == 0) {
                 fault();
                 _exit(50);
               }
             }
           }),
           1000);
}

template <int Number>
void numbered(int, siginfo_t*, void*) {
  calls = Number;
}

template <int... Numbers>
bool replaced_by_all(std::integer_sequence<int, Numbers...>) {
  return ((install(numbered<Numbers>), install_sigbus_guard()) && ...);
}

TEST("handlers that come again and again need no more room, and too many are refused") {
  CHECK_EQ(end_of([] {
             for (int i = 0; i < 1000; ++i) {
               install(i % 2 == 0 ? counting : numbered<0>);
               if (!install_sigbus_guard()) _exit(1);
             }
             if (replaced_by_all(std::make_integer_sequence<int, 40>())) _exit(2);
           }),
           1000);
}

}  // namespace
}  // namespace rekord

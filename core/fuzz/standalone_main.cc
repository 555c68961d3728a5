// Runs a libFuzzer target where there is no libFuzzer: g++ with ASan and UBSan.
//
//     watcher                        worker (a fork)
//     sleeps, looks at the     ←──   copies every input into shared memory,
//     shared page, waits             runs the target on an exact heap copy of it
//
// The input lives in memory that both processes see, so it survives whatever kills the
// worker: a sanitizer, an abort, a kill for want of memory, or the watcher itself when an
// input takes more than five seconds. No signal handler, and no file written until one is
// needed. Where a sanitizer runtime counts allocations, the worker also holds every input
// to its share of memory: 32 times its bytes and a mebibyte.
//
//     crc_fuzz [--runs=N] [--seed=S] [--max-len=L] [--artifact=PATH] [FILE or DIRECTORY…]
//
// All corpus files run once as they are, then N mutations of them. A run is a function of
// the corpus and the seed, which is printed.

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#if defined(__linux__)
#include <sys/prctl.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// Present when a sanitizer runtime is linked in, null otherwise.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*malloc_hook)(const volatile void*, size_t), void (*free_hook)(const volatile void*));
extern "C" __attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void*);

namespace {

namespace fs = std::filesystem;
using Input = std::vector<uint8_t>;

constexpr uint64_t kNanoseconds = 1'000'000'000;
constexpr uint64_t kInputSeconds = 5;
constexpr uint64_t kMemoryFactor = 32, kMemoryFloorBytes = 1 << 20;

struct Options {
  uint64_t runs = 10'000;
  uint64_t seed = std::random_device{}();
  size_t max_len = 4096;
  std::string artifact;
  std::vector<std::string> corpus;
};

// What the watcher needs to know about the worker. The input follows in the same memory.
struct Shared {
  std::atomic<uint64_t> started_ns{0};  // of the input that is running, 0 between inputs
  std::atomic<uint64_t> input_bytes{0};
  std::atomic<uint64_t> inputs_done{0};
  std::atomic<uint64_t> peak_bytes{0};  // only set when the memory bound is broken

  uint8_t* input() { return reinterpret_cast<uint8_t*>(this + 1); }
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

uint64_t now_ns() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return static_cast<uint64_t>(time.tv_sec) * kNanoseconds + static_cast<uint64_t>(time.tv_nsec);
}

// ---- Memory of one input ----------------------------------------------------------------
//
// Allocation hooks have no argument of ours, so this is the one place with globals.
// Relaxed atomics: a target may have threads, and only the sum matters.

std::atomic<Shared*> hooked{nullptr};
std::atomic<int64_t> live_bytes{0};
std::atomic<int64_t> allowed_bytes{0};

void on_malloc(const volatile void*, size_t bytes) {
  Shared* const shared = hooked.load(std::memory_order_relaxed);
  if (shared == nullptr) return;
  const int64_t live =
      live_bytes.fetch_add(static_cast<int64_t>(bytes)) + static_cast<int64_t>(bytes);
  if (live <= allowed_bytes.load(std::memory_order_relaxed)) return;
  hooked = nullptr;  // what follows may allocate
  shared->peak_bytes = static_cast<uint64_t>(live);
  std::abort();
}

void on_free(const volatile void* memory) {
  if (memory == nullptr || hooked.load(std::memory_order_relaxed) == nullptr) return;
  live_bytes -= static_cast<int64_t>(__sanitizer_get_allocated_size(memory));
}

// ---- Mutation -----------------------------------------------------------------------------

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {  // splitmix64
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t below(size_t bound) { return static_cast<size_t>(next() % bound); }
  uint8_t byte() { return static_cast<uint8_t>(next()); }

 private:
  uint64_t state_;
};

// Where lengths, counts and varints change their nature.
constexpr uint64_t kInteresting[] = {0,          1,          2,          0x7F,       0x80,
                                     0xFF,       0x100,      0x3FFF,     0x4000,     0x7FFF,
                                     0x8000,     0xFFFF,     0x10000,    0x7FFFFFFF, 0x80000000,
                                     0xFFFFFFFF, 1ull << 32, 1ull << 36, 1ull << 62, ~0ull >> 1,
                                     1ull << 63, ~0ull - 15, ~0ull - 11, ~0ull - 3,  ~0ull};

// Some lengths matter more than most: few bytes often, many bytes sometimes.
size_t some_bytes(Random& random, size_t at_most) {
  if (at_most == 0) return 0;
  const size_t bound = random.below(4) == 0 ? at_most : std::min<size_t>(at_most, 16);
  return 1 + random.below(bound);
}

void put_number(Random& random, Input& input) {
  uint64_t value = kInteresting[random.below(std::size(kInteresting))];
  if (random.below(2) == 0) value = input.size() + random.below(33) - 16;  // near our own length
  const size_t width = size_t{1} << random.below(4);
  if (input.size() < width) return;
  const size_t at = random.below(input.size() - width + 1);
  for (size_t i = 0; i < width; ++i) input[at + i] = static_cast<uint8_t>(value >> (8 * i));
}

void put_varint(Random& random, Input& input) {
  uint64_t value = kInteresting[random.below(std::size(kInteresting))];
  size_t at = random.below(input.size() + 1);
  do {
    const uint8_t byte = static_cast<uint8_t>((value & 0x7F) | (value > 0x7F ? 0x80 : 0));
    if (at < input.size())
      input[at] = byte;
    else
      input.push_back(byte);
    ++at;
    value >>= 7;
  } while (value != 0);
}

using Offset = Input::difference_type;

void mutate_once(Random& random, Input& input, const std::vector<Input>& corpus) {
  const auto at = [&](size_t index) { return input.begin() + static_cast<Offset>(index); };
  const size_t bytes = input.size();
  switch (bytes == 0 ? 2 : random.below(9)) {
    case 0:  // flip a bit
      input[random.below(bytes)] ^= static_cast<uint8_t>(1u << random.below(8));
      return;
    case 1:  // set a byte
      input[random.below(bytes)] = random.byte();
      return;
    case 2: {  // insert: noise, or a run of one value
      Input added(some_bytes(random, 256));
      const bool run = random.below(2) == 0;
      const uint8_t value = random.byte();
      for (uint8_t& byte : added) byte = run ? value : random.byte();
      input.insert(at(random.below(bytes + 1)), added.begin(), added.end());
      return;
    }
    case 3: {  // erase
      const size_t begin = random.below(bytes), count = some_bytes(random, bytes - begin);
      input.erase(at(begin), at(begin + count));
      return;
    }
    case 4: {  // repeat a piece of itself somewhere else
      const size_t begin = random.below(bytes), count = some_bytes(random, bytes - begin);
      const Input piece(at(begin), at(begin + count));
      input.insert(at(random.below(bytes + 1)), piece.begin(), piece.end());
      return;
    }
    case 5: {  // the front of this, the back of another
      const Input& other = corpus[random.below(corpus.size())];
      input.resize(random.below(bytes + 1));
      const size_t from = random.below(other.size() + 1);
      input.insert(input.end(), other.begin() + static_cast<Offset>(from), other.end());
      return;
    }
    case 6:
      put_number(random, input);
      return;
    case 7:
      put_varint(random, input);
      return;
    default:  // cut the end off
      input.resize(random.below(bytes));
      return;
  }
}

Input mutated(Random& random, const std::vector<Input>& corpus, size_t max_len) {
  Input input = corpus[random.below(corpus.size())];
  for (size_t steps = size_t{1} << random.below(5); steps > 0; --steps)
    mutate_once(random, input, corpus);
  if (input.size() > max_len) input.resize(max_len);
  return input;
}

// ---- The worker ---------------------------------------------------------------------------

void run_one(Shared& shared, const Input& input) {
  std::copy(input.begin(), input.end(), shared.input());
  shared.input_bytes = input.size();
  // Exactly its size, so that the first byte read too far is seen. Not a vector: one of
  // size zero would hand out a null pointer, which libFuzzer never does.
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[input.size()]);
  std::copy(input.begin(), input.end(), exact.get());

  live_bytes = 0;
  allowed_bytes = static_cast<int64_t>(kMemoryFactor * input.size() + kMemoryFloorBytes);
  shared.started_ns = now_ns();
  hooked = &shared;
  LLVMFuzzerTestOneInput(exact.get(), input.size());
  hooked = nullptr;
  shared.started_ns = 0;
  ++shared.inputs_done;
}

void work(Shared& shared, const Options& options, std::vector<Input> corpus) {
  if (__sanitizer_install_malloc_and_free_hooks != nullptr &&
      __sanitizer_get_allocated_size != nullptr)
    __sanitizer_install_malloc_and_free_hooks(on_malloc, on_free);
  for (const Input& input : corpus) run_one(shared, input);
  if (corpus.empty()) corpus.emplace_back();
  Random random(options.seed);
  for (uint64_t run = 0; run < options.runs; ++run)
    run_one(shared, mutated(random, corpus, options.max_len));
}

// ---- The watcher --------------------------------------------------------------------------

bool write_file(const std::string& path, const uint8_t* bytes, size_t count) {
  std::FILE* const file = std::fopen(path.c_str(), "wb");
  if (file == nullptr) return false;
  const bool written = std::fwrite(bytes, 1, count, file) == count;
  return std::fclose(file) == 0 && written;
}

std::optional<Input> read_file(const fs::path& path) {
  std::FILE* const file = std::fopen(path.c_str(), "rb");
  if (file == nullptr) return std::nullopt;
  Input input;
  uint8_t piece[4096];
  while (const size_t count = std::fread(piece, 1, sizeof piece, file))
    input.insert(input.end(), piece, piece + count);
  const bool good = std::ferror(file) == 0;
  std::fclose(file);
  if (!good) return std::nullopt;
  return input;
}

// Sorted by path: a directory has no order of its own, and the seed must mean something.
std::optional<std::vector<Input>> read_corpus(const Options& options) {
  std::vector<fs::path> paths;
  for (const std::string& name : options.corpus) {
    std::error_code error;
    if (!fs::is_directory(name, error)) {
      paths.emplace_back(name);
      continue;
    }
    for (fs::recursive_directory_iterator entry(name, error), end; !error && entry != end;
         entry.increment(error))
      if (entry->is_regular_file(error)) paths.push_back(entry->path());
    if (error) {
      std::fprintf(stderr, "%s: %s\n", name.c_str(), error.message().c_str());
      return std::nullopt;
    }
  }
  std::sort(paths.begin(), paths.end());
  std::vector<Input> corpus;
  for (const fs::path& path : paths) {
    std::optional<Input> input = read_file(path);
    if (!input) {
      std::fprintf(stderr, "%s: cannot be read\n", path.c_str());
      return std::nullopt;
    }
    corpus.push_back(std::move(*input));
  }
  return corpus;
}

// How the worker ended, or nothing if it was still busy with one input after its time.
std::optional<int> wait_for(pid_t worker, const Shared& shared) {
  for (;;) {
    int status = 0;
    const pid_t ended = waitpid(worker, &status, WNOHANG);
    if (ended == worker) return status;
    if (ended < 0 && errno != EINTR) return -1;
    const uint64_t started = shared.started_ns;
    if (started != 0 && now_ns() > started + kInputSeconds * kNanoseconds) {
      kill(worker, SIGKILL);
      waitpid(worker, &status, 0);
      return std::nullopt;
    }
    const timespec nap{0, 10'000'000};
    nanosleep(&nap, nullptr);
  }
}

bool number(std::string_view argument, std::string_view option, auto& value) {
  if (!argument.starts_with(option)) return false;
  argument.remove_prefix(option.size());
  const auto [end, error] =
      std::from_chars(argument.data(), argument.data() + argument.size(), value);
  return error == std::errc{} && end == argument.data() + argument.size();
}

bool parse(int argc, char** argv, Options& options) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    constexpr std::string_view kArtifact = "--artifact=";
    if (argument.starts_with(kArtifact)) {
      options.artifact = argument.substr(kArtifact.size());
    } else if (argument.starts_with("--")) {
      if (!number(argument, "--runs=", options.runs) &&
          !number(argument, "--seed=", options.seed) &&
          !number(argument, "--max-len=", options.max_len)) {
        std::fprintf(stderr, "unknown option or bad number: %s\n", argv[i]);
        return false;
      }
    } else {
      options.corpus.emplace_back(argument);
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string target = fs::path(argv[0]).filename();
  Options options;
  options.artifact = "crash-" + target;
  if (!parse(argc, argv, options)) return 2;
  std::optional<std::vector<Input>> corpus = read_corpus(options);
  if (!corpus) return 2;

  size_t largest = options.max_len;
  for (const Input& input : *corpus) largest = std::max(largest, input.size());
  void* const memory = mmap(nullptr, sizeof(Shared) + largest, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    std::perror("mmap");
    return 2;
  }
  Shared& shared = *new (memory) Shared;

  const size_t corpus_files = corpus->size();
  std::printf("%s: seed %llu, %zu corpus files, %llu mutations\n", target.c_str(),
              static_cast<unsigned long long>(options.seed), corpus_files,
              static_cast<unsigned long long>(options.runs));
  std::fflush(stdout);
  const pid_t worker = fork();
  if (worker < 0) {
    std::perror("fork");
    return 2;
  }
  if (worker == 0) {
#if defined(__linux__)
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would stop a worker that hangs
#endif
    work(shared, options, std::move(*corpus));
    return 0;
  }

  const std::optional<int> status = wait_for(worker, shared);
  const unsigned long long done = shared.inputs_done;
  if (status && WIFEXITED(*status) && WEXITSTATUS(*status) == 0) {
    std::printf("%s: %llu inputs, all well\n", target.c_str(), done);
    return 0;
  }
  std::string why;
  if (!status) {
    why = "took more than " + std::to_string(kInputSeconds) + " s";
  } else if (shared.peak_bytes != 0) {
    why = "needed " + std::to_string(shared.peak_bytes) + " bytes of memory at once, more than " +
          std::to_string(kMemoryFactor) + " x its size + " + std::to_string(kMemoryFloorBytes);
  } else if (WIFSIGNALED(*status)) {
    why = "ended by signal " + std::to_string(WTERMSIG(*status));
  } else {
    why = "ended with exit code " + std::to_string(WEXITSTATUS(*status));
  }
  if (done == corpus_files + options.runs) {
    // Every input returned: a leak, most likely, and the last input is not to blame.
    std::fprintf(stderr, "%s: FAILED after the last input: %s; seed %llu\n", target.c_str(),
                 why.c_str(), static_cast<unsigned long long>(options.seed));
    return 1;
  }
  const bool written = write_file(options.artifact, shared.input(), shared.input_bytes);
  std::fprintf(stderr, "%s: FAILED at input %llu (%llu bytes, %s %s): %s; seed %llu\n",
               target.c_str(), done, static_cast<unsigned long long>(shared.input_bytes),
               written ? "kept in" : "could not be written to", options.artifact.c_str(),
               why.c_str(), static_cast<unsigned long long>(options.seed));
  return 1;
}

// A test is a sentence and a body; everything else happens by itself.
//
//     TEST("a cut header is not a frame") {
//       CHECK(frames.empty());
//       CHECK_EQ(fault.offset, 12u);        // shows both values when they differ
//       REQUIRE(!frames.empty());           // gives up this test: what follows needs it
//     }
//
// Our own, because no C++ framework comes with the Python packaging that builds us, and
// these few lines are all that we use of one. A failed check does not end its test.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdio>
#include <iterator>
#include <ranges>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace rekord::testing {

struct Test {
  const char* sentence;
  const char* file;
  void (*body)();
};

// Filled before main by the TEST macro, in the order of each file.
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}

struct Registered {
  Registered(const char* sentence, const char* file, void (*body)()) {
    tests().push_back({sentence, file, body});
  }
};

// Failed checks of the test that is running.
inline size_t& failed_checks() {
  static size_t count = 0;
  return count;
}

template <class T>
concept Number = std::integral<T> && !std::same_as<T, bool> && !std::same_as<T, char> &&
                 !std::same_as<T, wchar_t> && !std::same_as<T, char8_t> &&
                 !std::same_as<T, char16_t> && !std::same_as<T, char32_t>;

template <class T>
concept Text = std::convertible_to<const T&, std::string_view> && !std::is_null_pointer_v<T>;

template <class T>
std::string show(const T& value) {
  if constexpr (std::same_as<T, bool>) {
    return value ? "true" : "false";
  } else if constexpr (Text<T>) {
    return '"' + std::string(std::string_view(value)) + '"';
  } else if constexpr (std::is_enum_v<T>) {
    return show(static_cast<std::underlying_type_t<T>>(value));
  } else if constexpr (std::integral<T>) {
    char hex[24];
    std::snprintf(hex, sizeof hex, " (0x%llx)",
                  static_cast<unsigned long long>(static_cast<std::make_unsigned_t<T>>(value)));
    return std::to_string(value) + hex;
  } else if constexpr (std::floating_point<T>) {
    char text[40];
    std::snprintf(text, sizeof text, "%.17g", static_cast<double>(value));
    return text;
  } else if constexpr (std::ranges::input_range<const T>) {
    std::string text = "[";
    size_t shown = 0;
    for (const auto& item : value) {
      if (shown > 0) text += ", ";
      if (shown++ == 16) return text + "…]";
      text += show(item);
    }
    return text + "]";
  } else {
    return "(a value that cannot be shown)";
  }
}

template <class A, class B>
bool same(const A& a, const B& b) {
  if constexpr (Number<A> && Number<B>) {
    return std::cmp_equal(a, b);
  } else if constexpr (Text<A> && Text<B>) {
    return std::string_view(a) == std::string_view(b);
  } else if constexpr (requires { a == b; }) {
    return a == b;
  } else {
    return std::ranges::equal(a, b);
  }
}

inline void fail(const char* file, int line, const char* check, const std::string& values) {
  // One broken line inside a loop should not bury the other tests.
  constexpr size_t kShown = 10;
  if (failed_checks()++ < kShown) std::printf("%s:%d: %s%s\n", file, line, check, values.c_str());
}

inline bool check(bool holds, const char* file, int line, const char* text) {
  if (!holds) fail(file, line, text, "");
  return holds;
}

template <class A, class B>
void check_equal(const A& a, const B& b, const char* file, int line, const char* text) {
  if (!same(a, b)) fail(file, line, text, "\n    left   " + show(a) + "\n    right  " + show(b));
}

}  // namespace rekord::testing

#define REKORD_JOIN_(a, b) a##b
#define REKORD_JOIN(a, b) REKORD_JOIN_(a, b)

#define TEST(sentence)                                                                \
  static void REKORD_JOIN(test_, __LINE__)();                                         \
  static const ::rekord::testing::Registered REKORD_JOIN(test_registered_, __LINE__){ \
      sentence, __FILE__, &REKORD_JOIN(test_, __LINE__)};                             \
  static void REKORD_JOIN(test_, __LINE__)()

#define CHECK(...)                                                                               \
  static_cast<void>(::rekord::testing::check(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, \
                                             "CHECK(" #__VA_ARGS__ ")"))

#define CHECK_EQ(a, b) \
  ::rekord::testing::check_equal((a), (b), __FILE__, __LINE__, "CHECK_EQ(" #a ", " #b ")")

#define REQUIRE(...)                                                                  \
  do {                                                                                \
    if (!::rekord::testing::check(static_cast<bool>(__VA_ARGS__), __FILE__, __LINE__, \
                                  "REQUIRE(" #__VA_ARGS__ ")"))                       \
      return;                                                                         \
  } while (false)

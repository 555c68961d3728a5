// Where the rows of a text file begin, and what the fields of a delimited one look like.
//
//     name,remark\n
//     Ada,"said: ""no""\n      a quoted field may hold newlines and, doubled, quotes
//     and left"\r\n            \r\n ends a row too
//     \n                       an empty line is a line, but not a row
//     Bob,6" tall\n            a quote that does not open a field is a character
//
// A file is fed in blocks of any size: the state between two bytes is one of six.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bytes.h"

namespace rekord {

struct TextRules {
  // Without fields, a row is a line: quotes mean nothing, and a lone \r ends none.
  bool fields = false;
  char delimiter = ',';
  char quote = '"';
};

class RowScanner {
 public:
  // The first byte to be fed is at `offset`, on the line `line`, where a row may begin.
  RowScanner(TextRules rules, uint64_t offset, uint64_t line);

  // Appends, for every row that begins in `block`, its first byte and its line.
  void feed(Bytes block, std::vector<int64_t>& starts, std::vector<int64_t>& lines);

  uint64_t offset() const noexcept { return offset_; }
  uint64_t line() const noexcept { return line_; }
  // Whether a quote that was opened is still open.
  bool in_quotes() const noexcept { return state_ == State::quoted; }

 private:
  enum class State : uint8_t {
    line_start,
    after_return,
    field_start,
    field,
    quoted,
    quote_in_quoted
  };

  void feed_lines(std::string_view text, std::vector<int64_t>& starts, std::vector<int64_t>& lines);
  void feed_fields(std::string_view text, std::vector<int64_t>& starts,
                   std::vector<int64_t>& lines);

  TextRules rules_;
  uint64_t offset_;
  uint64_t line_;
  State state_ = State::line_start;
  bool before_lone_return_ = false;
  std::array<bool, 256> ends_field_{};
};

// The type that a field can have. Numbers may be surrounded by spaces.
enum class FieldForm : uint8_t {
  missing,  // one of the words for it
  whole,    // fits int64
  padded,   // digits after a leading zero: an identifier
  large,    // whole, and beyond int64
  real,
  nan,
  truth,  // true or false
  text,
};
constexpr size_t kFieldForms = 8;

FieldForm form_of(std::string_view field) noexcept;

class FieldSurvey {
 public:
  FieldSurvey(TextRules rules, size_t columns, std::vector<std::string> missing);

  // Inspects whole rows. One with another number of fields is counted and ignored for the
  // columns. Once a column holds a text, its other fields count as texts, or as missing.
  void feed(Bytes rows);

  using Counts = std::array<uint64_t, kFieldForms>;
  const std::vector<Counts>& columns() const noexcept { return counts_; }
  uint64_t rows() const noexcept { return rows_; }
  uint64_t irregular() const noexcept { return irregular_; }

 private:
  bool is_missing(std::string_view field) const noexcept;

  TextRules rules_;
  std::vector<std::string> missing_;
  std::array<bool, 256> missing_first_{};
  bool empty_is_missing_ = false;
  std::vector<Counts> counts_;
  std::vector<FieldForm> row_;
  uint64_t rows_ = 0;
  uint64_t irregular_ = 0;
};

}  // namespace rekord

#include "lines.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace rekord {
namespace {

bool is_digit(char c) noexcept { return c >= '0' && c <= '9'; }

bool same_word(std::string_view field, std::string_view lower) noexcept {
  if (field.size() != lower.size()) return false;
  for (size_t i = 0; i < field.size(); ++i)
    if ((field[i] | 0x20) != lower[i]) return false;
  return true;
}

// true, True and TRUE, but not tRuE.
bool is_truth(std::string_view field) noexcept {
  if (!same_word(field, "true") && !same_word(field, "false")) return false;
  const auto upper = [](char c) { return c < 'a'; };
  const bool rest = upper(field[1]);
  if (rest && !upper(field[0])) return false;
  return std::all_of(field.begin() + 1, field.end(), [&](char c) { return upper(c) == rest; });
}

bool fits_int64(std::string_view digits, bool negative) noexcept {
  constexpr std::string_view most = "9223372036854775807", least = "9223372036854775808";
  if (digits.size() != most.size()) return digits.size() < most.size();
  return digits <= (negative ? least : most);
}

}  // namespace

RowScanner::RowScanner(TextRules rules, uint64_t offset, uint64_t line)
    : rules_(rules), offset_(offset), line_(line) {
  for (char c : {rules.delimiter, '\n', '\r'}) ends_field_[static_cast<uint8_t>(c)] = true;
}

void RowScanner::feed(Bytes block, std::vector<int64_t>& starts, std::vector<int64_t>& lines) {
  const std::string_view text = as_text(block);
  if (rules_.fields)
    feed_fields(text, starts, lines);
  else
    feed_lines(text, starts, lines);
  offset_ += text.size();
}

void RowScanner::feed_lines(std::string_view text, std::vector<int64_t>& starts,
                            std::vector<int64_t>& lines) {
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (state_ == State::line_start && c == '\r') {
      state_ = State::after_return;  // an empty line, if \n follows
      ++at;
    } else if (state_ == State::line_start || state_ == State::after_return) {
      if (c == '\n') {
        ++line_;
        ++at;
        state_ = State::line_start;
        continue;
      }
      const bool returned = state_ == State::after_return;
      starts.push_back(static_cast<int64_t>(offset_ + at) - (returned ? 1 : 0));
      lines.push_back(static_cast<int64_t>(line_));
      state_ = State::field;
    } else {
      const void* end = std::memchr(text.data() + at, '\n', text.size() - at);
      if (end == nullptr) return;
      at = static_cast<size_t>(static_cast<const char*>(end) - text.data()) + 1;
      ++line_;
      state_ = State::line_start;
    }
  }
}

void RowScanner::feed_fields(std::string_view text, std::vector<int64_t>& starts,
                             std::vector<int64_t>& lines) {
  // Most blocks hold no quote, and then only the ends of lines matter.
  const bool quotes = text.find(rules_.quote) != std::string_view::npos;
  const bool returns = text.find('\r') != std::string_view::npos;
  size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    switch (state_) {
      case State::after_return:
        // \r has ended the line; \n belongs to it.
        state_ = State::line_start;
        if (c == '\n') ++at;
        break;
      case State::line_start:
        if (c == '\n' || c == '\r') {
          ++line_;
          ++at;
          if (c == '\r') state_ = State::after_return;
          break;
        }
        starts.push_back(static_cast<int64_t>(offset_ + at));
        lines.push_back(static_cast<int64_t>(line_));
        state_ = State::field_start;
        break;
      case State::field_start:
        if (c == rules_.quote) {
          state_ = State::quoted;
          ++at;
        } else {
          state_ = State::field;
        }
        break;
      case State::field:
        if (!quotes && !returns) {
          const void* end = std::memchr(text.data() + at, '\n', text.size() - at);
          if (end == nullptr) {
            // The next block may begin with a quote: whether that opens a field must be known.
            state_ = text.back() == rules_.delimiter ? State::field_start : State::field;
            return;
          }
          at = static_cast<size_t>(static_cast<const char*>(end) - text.data());
        } else {
          while (at < text.size() && !ends_field_[static_cast<uint8_t>(text[at])]) ++at;
          if (at == text.size()) return;
        }
        if (text[at] == rules_.delimiter) {
          state_ = State::field_start;
        } else {
          ++line_;
          state_ = text[at] == '\r' ? State::after_return : State::line_start;
        }
        ++at;
        break;
      case State::quoted: {
        const void* end = std::memchr(text.data() + at, rules_.quote, text.size() - at);
        const size_t stop = end == nullptr
                                ? text.size()
                                : static_cast<size_t>(static_cast<const char*>(end) - text.data());
        for (; at < stop; ++at) {
          // \r\n is one end, and a lone \r is one too.
          if (text[at] == '\n') line_ += before_lone_return_ ? 0 : 1;
          if (text[at] == '\r') ++line_;
          before_lone_return_ = text[at] == '\r';
        }
        if (end != nullptr) {
          before_lone_return_ = false;
          state_ = State::quote_in_quoted;
          ++at;
        }
        break;
      }
      case State::quote_in_quoted:
        if (c == rules_.quote) {
          state_ = State::quoted;  // two stand for one
          ++at;
        } else {
          state_ = State::field;
        }
        break;
    }
  }
}

FieldForm form_of(std::string_view field) noexcept {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!field.empty() && blank(field.front())) field.remove_prefix(1);
  while (!field.empty() && blank(field.back())) field.remove_suffix(1);
  if (field.empty()) return FieldForm::text;
  const bool negative = field.front() == '-';
  std::string_view rest = field.substr(negative ? 1 : 0);
  if (rest.empty()) return FieldForm::text;
  if (!is_digit(rest.front()) && rest.front() != '.') {
    if (same_word(rest, "nan")) return FieldForm::nan;
    if (same_word(rest, "inf") || same_word(rest, "infinity")) return FieldForm::real;
    return is_truth(field) ? FieldForm::truth : FieldForm::text;
  }
  size_t at = 0;
  while (at < rest.size() && is_digit(rest[at])) ++at;
  const size_t whole = at;
  const bool padded = whole > 1 && rest[0] == '0';
  if (at == rest.size()) {
    if (padded) return FieldForm::padded;
    return fits_int64(rest, negative) ? FieldForm::whole : FieldForm::large;
  }
  size_t digits = whole;
  if (rest[at] == '.') {
    const size_t point = at++;
    while (at < rest.size() && is_digit(rest[at])) ++at;
    digits += at - point - 1;
  }
  if (digits == 0) return FieldForm::text;
  if (at < rest.size() && (rest[at] | 0x20) == 'e') {
    ++at;
    if (at < rest.size() && (rest[at] == '+' || rest[at] == '-')) ++at;
    const size_t exponent = at;
    while (at < rest.size() && is_digit(rest[at])) ++at;
    if (at == exponent) return FieldForm::text;
  }
  if (at != rest.size()) return FieldForm::text;
  return padded ? FieldForm::padded : FieldForm::real;
}

FieldSurvey::FieldSurvey(TextRules rules, size_t columns, std::vector<std::string> missing)
    : rules_(rules), missing_(std::move(missing)), counts_(columns), row_(columns) {
  for (const std::string& word : missing_) {
    if (word.empty())
      empty_is_missing_ = true;
    else
      missing_first_[static_cast<uint8_t>(word[0])] = true;
  }
}

bool FieldSurvey::is_missing(std::string_view field) const noexcept {
  if (field.empty()) return empty_is_missing_;
  if (!missing_first_[static_cast<uint8_t>(field[0])]) return false;
  return std::find(missing_.begin(), missing_.end(), field) != missing_.end();
}

void FieldSurvey::feed(Bytes rows) {
  const std::string_view text = as_text(rows);
  const char delimiter = rules_.delimiter;
  size_t at = 0;
  while (at < text.size()) {
    if (text[at] == '\n' || text[at] == '\r') {  // the end of the row before, or an empty line
      ++at;
      continue;
    }
    size_t field = 0;
    for (;; ++at) {
      FieldForm form;
      bool plain = true;  // what is between the quotes, or the whole, is the value
      size_t begin = at, end = at;
      if (at < text.size() && text[at] == rules_.quote) {
        begin = end = ++at;
        while ((end = text.find(rules_.quote, end)) != std::string_view::npos) {
          if (end + 1 >= text.size() || text[end + 1] != rules_.quote) break;
          plain = false;
          end += 2;
        }
        if (end == std::string_view::npos) end = text.size();
        at = std::min(end + 1, text.size());
      }
      const size_t tail = at;
      while (at < text.size() && text[at] != delimiter && text[at] != '\n' && text[at] != '\r')
        ++at;
      if (begin == tail)
        end = at;
      else if (at != tail)
        plain = false;
      const std::string_view value = text.substr(begin, end - begin);
      // Beside one text, whatever else is in a column is a text too.
      constexpr size_t text_form = static_cast<size_t>(FieldForm::text);
      const bool texts = field < counts_.size() && counts_[field][text_form] > 0;
      form = plain && is_missing(value) ? FieldForm::missing
             : !plain || texts          ? FieldForm::text
                                        : form_of(value);
      if (field < row_.size()) row_[field] = form;
      ++field;
      if (at >= text.size() || text[at] != delimiter) break;
    }
    ++rows_;
    if (field != row_.size()) {
      ++irregular_;
      continue;
    }
    for (size_t i = 0; i < field; ++i) ++counts_[i][static_cast<size_t>(row_[i])];
  }
}

}  // namespace rekord

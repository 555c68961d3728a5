#include "lines.h"

#include <string>
#include <string_view>
#include <vector>

#include "harness.h"

namespace rekord {
namespace {

Bytes bytes(std::string_view text) { return std::as_bytes(std::span(text.data(), text.size())); }

// "start:line" of every row, the text fed in blocks of `block_bytes`.
std::string rows(std::string_view text, bool fields, size_t block_bytes, bool* open = nullptr) {
  RowScanner scanner({.fields = fields}, 0, 1);
  std::vector<int64_t> starts, lines;
  for (size_t at = 0; at < text.size(); at += block_bytes)
    scanner.feed(bytes(text.substr(at, block_bytes)), starts, lines);
  if (open != nullptr) *open = scanner.in_quotes();
  std::string out;
  for (size_t i = 0; i < starts.size(); ++i)
    out += (i ? " " : "") + std::to_string(starts[i]) + ":" + std::to_string(lines[i]);
  return out;
}

TEST("rows begin at the same bytes and lines for blocks of any size") {
  struct Row {
    std::string_view text, fields, lines;
  };
  const Row all[] = {
      {"a,b\n1,2\n", "0:1 4:2", "0:1 4:2"},
      {"a\r\nb\r\n", "0:1 3:2", "0:1 3:2"},
      {"a\rb\rc", "0:1 2:2 4:3", "0:1"},
      {"\n\na\n\r\n\nb", "2:3 7:6", "2:3 7:6"},
      {"1,\"x\ny\"\n2,z", "0:1 8:3", "0:1 5:2 8:3"},
      {"\"a\"\"\n\"\"b\",1\n2", "0:1 12:3", "0:1 5:2 12:3"},
      {"6\" tall\n7\" tall\n", "0:1 8:2", "0:1 8:2"},
      {"\"a\"x\"y\nb", "0:1 7:2", "0:1 7:2"},
      {"\"a\r\nb\rc\"\nd", "0:1 9:4", "0:1 4:2 9:3"},
      {"\rab\n", "1:2", "0:1"},
      {"", "", ""},
  };
  for (const Row& row : all)
    for (size_t block = 1; block <= row.text.size() + 1; ++block) {
      CHECK_EQ(rows(row.text, true, block), row.fields);
      CHECK_EQ(rows(row.text, false, block), row.lines);
    }
}

TEST("a quote that is not closed is known at the end") {
  bool open = false;
  rows("1,\"x\ny\n", true, 3, &open);
  CHECK(open);
  rows("1,\"x\ny\"", true, 3, &open);
  CHECK(!open);
}

TEST("a field is taken for what it looks like") {
  struct Row {
    std::string_view field;
    FieldForm form;
  };
  const Row all[] = {
      {"0", FieldForm::whole},
      {"-0", FieldForm::whole},
      {" 12\t", FieldForm::whole},
      {"9223372036854775807", FieldForm::whole},
      {"-9223372036854775808", FieldForm::whole},
      {"9223372036854775808", FieldForm::large},
      {"-9223372036854775809", FieldForm::large},
      {"100000000000000000000", FieldForm::large},
      {"00123", FieldForm::padded},
      {"-01", FieldForm::padded},
      {"00.5", FieldForm::padded},
      {"0.5", FieldForm::real},
      {".5", FieldForm::real},
      {"5.", FieldForm::real},
      {"1e5", FieldForm::real},
      {"-1.5E-3", FieldForm::real},
      {"inf", FieldForm::real},
      {"-Infinity", FieldForm::real},
      {"NaN", FieldForm::nan},
      {"-nan", FieldForm::nan},
      {"true", FieldForm::truth},
      {"False", FieldForm::truth},
      {"TRUE", FieldForm::truth},
      {"tRue", FieldForm::text},
      {"TRue", FieldForm::text},
      {"+5", FieldForm::text},
      {"0x1F", FieldForm::text},
      {"1_000", FieldForm::text},
      {"1e", FieldForm::text},
      {".", FieldForm::text},
      {"-", FieldForm::text},
      {"", FieldForm::text},
      {"  ", FieldForm::text},
      {"2007-11-11", FieldForm::text},
      {"1.2.3", FieldForm::text},
  };
  for (const Row& row : all)
    CHECK_EQ(static_cast<int>(form_of(row.field)), static_cast<int>(row.form));
}

std::string counts(const FieldSurvey& survey) {
  std::string out;
  for (const FieldSurvey::Counts& column : survey.columns()) {
    for (uint64_t count : column) out += std::to_string(count);
    out += ' ';
  }
  return out;
}

TEST("a survey counts the forms of regular rows only") {
  FieldSurvey survey({.fields = true}, 2, {"", "NA"});
  survey.feed(bytes("1,a\n\n\"2\",\"\"\r\nNA,\"x \"\"y\"\"\"\n3\n4,b,c\n\"5\"x,1.5"));
  CHECK_EQ(survey.rows(), 6u);
  CHECK_EQ(survey.irregular(), 2u);
  CHECK_EQ(counts(survey), "12000001 10000003 ");
}

TEST("a survey of a field that is cut stays inside the bytes") {
  for (std::string_view text : {"\"", "a,\"", "a,\"b\"\"", "\"\"\"", ",", "a,"}) {
    FieldSurvey survey({.fields = true}, 2, {""});
    survey.feed(bytes(text));
    CHECK_EQ(survey.rows(), 1u);
  }
}

}  // namespace
}  // namespace rekord

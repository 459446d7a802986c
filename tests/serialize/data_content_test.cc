// Detection of training data by content: rows in any form, plain text, and formats refused by name.
#include "serialize/training_data/data_content.h"

#include <doctest/doctest.h>

#include <string>
#include <string_view>
#include <vector>

#include "serialize/training_data/line_reader.h"
#include "serialize/training_data/row.h"
#include "tests/ok.h"

namespace tessera {
namespace {

using namespace std::string_literals;
using test::ok;

struct Case {
  std::string content;
  std::string wanted;  // "rows", "text", or a part of the refusal
  std::string path = {};
};

std::string told(const Case& each) {
  const Result<bool> rows = holds_rows(each.content, true, "'x'", each.path);
  return !rows.ok() ? std::string(rows.status().message()) : *rows ? "rows" : "text";
}

// Rows that a reader gives, joined by |.
std::string rows_of(const std::string& content) {
  LineReader reader = LineReader::of_text(content);
  std::string all;
  for (;;) {
    const auto lines = reader.read(1);
    if (!lines.ok()) return all + std::string(lines.status().message());
    if (lines->empty()) return all;
    for (const LineReader::Line& line : *lines) all += std::to_string(line.number) + ":" + line.text + "|";
  }
}

TEST_CASE("the content tells rows from texts, and other formats are refused by name") {
  const std::string sixteen("\xff\xfeh\0e\0y\0", 8);
  std::string verses, numbered;
  for (int i = 0; i < 10; ++i) {
    verses += "Roses are red, violets are blue\nSugar is sweet, and so are you\n";
    numbered += std::to_string(i) + ",x\n";
  }
  for (const Case& each : std::vector<Case>{
           {R"({"messages": []})", "rows"},
           {"\xef\xbb\xbf \n[ {\"conversations\": []}]", "rows"},
           {"{\n  \"text\": \"a\"\n}\n{\n \"text\": 1 }", "rows"},
           {"[\n{\"instruction\": \"a\"},", "rows"},
           {"{}", "rows"},
           {"Once upon a time", "text"},
           {"", "text"},
           {"[1] Smith et al.\n[2] Jones", "text"},
           {"[Verse 1]\nLa la", "text"},
           {"[\"Hello,\" she said]", "text"},
           {"{{ bos }} is a template", "text"},
           {"{ int a[] = {1}; }", "text"},
           {verses, "text"},
           {"id,name\n" + numbered, "comma-separated"},
           {"PART ONE", "text"},
           {"ORCHARDS bloom", "text"},
           {"BZh is a hiss", "text"},
           {"[\"one\", \"two\"]", "array of texts"},
           {"[[1, 2], [3]]", "array of numbers"},
           {"[]", "array of nothing"},
           {"{'messages': [{'role': 'user'}]}\n", "json.dumps"},
           {"prompt,completion\nQ?,A.\n", "comma-separated values (columns prompt,completion)"},
           {"question\tanswer\na b\tc\n", "tab-separated"},
           {"\"text\";\"label\"\n\"a;\nb\";1\n", "semicolon-separated"},
           {"one line", "a table by its name (.csv)", "a.CSV"},
           {"// no json", "holds no rows of JSON", "a.json"},
           {"PAR1 junk", "Parquet"},
           {"\x1f\x8b\x08", "gunzip"},
           {"PK\x03\x04", "zip archive"},
           {"(\xb5/\xfd", "Zstandard"},
           {"BZh91AY&SY....", "bzip2"},
           {"ARROW1", "Arrow"},
           {"SQLite format 3\0"s, "SQLite"},
           {"%PDF-1.7", "pdftotext"},
           {"GGUF\3", "wrong order"},
           {"TSRMODEL", "wrong order"},
           {"\x10\0\0\0\0\0\0\0{\"a\""s, "safetensors"},
           {sixteen, "iconv -f UTF-16 "},
           {sixteen.substr(2), "iconv -f UTF-16LE "},
           {"abc\0def"s, "byte 3 is 0"},
       }) {
    INFO(each.content);
    const std::string found = told(each);
    if (each.wanted == "rows" || each.wanted == "text")
      CHECK(found == each.wanted);
    else
      CHECK_MESSAGE(found.find(each.wanted) != std::string::npos, found);
  }
  CHECK(!check_utf8("caf\xe9", "'x'").ok());
  CHECK(check_utf8("caf\xe9", "'x'").message().find("byte 3 (0xe9)") != std::string_view::npos);
  CHECK(check_utf8("caf\xc3\xa9", "'x'").ok());
  // Pairs for a classifier are a table by design.
  CHECK(!ok(holds_rows("query\tcontext\na\tb\n", true, "'x'", "p.tsv", true)));
}

TEST_CASE("rows are read one by one from arrays and from objects that span lines, whatever the size of all") {
  CHECK(rows_of("[{\"a\": \"]}\\\"\"}, {\"b\":[{}]} ]\n") == "1:{\"a\": \"]}\\\"\"}|2:{\"b\":[{}]}|");
  CHECK(rows_of("{\n\"a\":1}\n{\"b\"\n:2}") == "1:{\n\"a\":1}|2:{\"b\"\n:2}|");
  CHECK(rows_of("{\"a\":1}{\"b\":2}") == "1:{\"a\":1}|2:{\"b\":2}|");
  CHECK(rows_of("{\"a\":1}\n\n{\"b\":2}\n") == "1:{\"a\":1}|3:{\"b\":2}|");
  CHECK(rows_of("[{\"a\":1}, 7, \"x\"]") == "1:{\"a\":1}|2:7|3:\"x\"|");
  CHECK(rows_of("[]").empty());
  CHECK(rows_of("[{\"a\":1}").find("ends inside its array, behind row 1") != std::string::npos);
  CHECK(rows_of("[{\"a\":1},").find("ends inside its array") != std::string::npos);
  CHECK(rows_of("[{\"a\":1}, {\"b\": \"").find("ends inside row 2") != std::string::npos);
  CHECK(rows_of("[{\"a\":1} {\"b\":2}]").find("behind row 1 of the array is '{'") != std::string::npos);
  CHECK(rows_of("[{\"a\":1}] x").find("goes on behind the end of its array") != std::string::npos);
  CHECK(rows_of("[{\"a\":1},,]").find("row 2 begins with ','") != std::string::npos);
  CHECK(rows_of("\x1f\x8b").find("gunzip") != std::string::npos);
  std::string deep = "[";
  for (int i = 0; i < 300'000; ++i) deep += "{\"a\":[";
  CHECK(rows_of(deep).find("ends inside row 1") != std::string::npos);
}

TEST_CASE("Alpaca's, Dolly's and ShareGPT's fields are messages") {
  const auto row = [](std::string_view json, std::optional<RowKind> kind = std::nullopt) {
    const Result<TrainingRow> made = parse_row(Json::parse(json), kind);
    if (!made.ok()) return std::string(made.status().message());
    return std::string(name_of(made->kind)) + " " + dump(made->prompt) + dump(made->completion);
  };
  CHECK(row(R"({"instruction": "Add", "input": "1 2", "output": "3", "text": "Below"})") ==
        R"(prompt_completion [{"role":"user","content":"Add\n1 2"}][{"role":"assistant","content":"3"}])");
  CHECK(
      row(R"({"instruction": "Hi", "context": "", "response": "Yo", "system": "S", "history": [["a", "b"]]})") ==
      R"(prompt_completion [{"role":"system","content":"S"},{"role":"user","content":"a"},)"
      R"({"role":"assistant","content":"b"},{"role":"user","content":"Hi"}][{"role":"assistant","content":"Yo"}])");
  CHECK(row(R"({"instruction": "Hi", "output": "Yo"})", RowKind::kMessages) ==
        R"(messages null[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yo"}])");
  CHECK(row(R"({"instruction": "Hi", "chosen": "Yo", "rejected": "No"})") ==
        R"(preference [{"role":"user","content":"Hi"}][{"role":"assistant","content":"Yo"}])");
  CHECK(
      row(R"({"system": "S", "conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]})") ==
      R"(messages null[{"role":"system","content":"S"},{"role":"user","content":"a"},{"role":"assistant","content":"b"}])");
  CHECK(row(R"({"instruction": "Hi"})").find("wanted 'output' or 'response'") != std::string::npos);
  CHECK(row(R"({"instruction": 3, "output": "x"})").find("'instruction' is 3") != std::string::npos);
  CHECK(row(R"({"instruction": "a", "input": "x", "context": "y", "output": "x"})").find("one of them") !=
        std::string::npos);
  CHECK(row(R"({"instruction": "a", "prompt": "x", "completion": "y"})").find("'instruction'") !=
        std::string::npos);
  CHECK(row(R"({"system": "a", "messages": [{"role": "system", "content": "b"}]})").find("one of them") !=
        std::string::npos);
}

}  // namespace
}  // namespace tessera

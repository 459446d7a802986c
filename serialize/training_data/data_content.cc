// Heuristics on the first bytes: magic numbers of known formats, JSON at the beginning, headers of tables, invalid UTF-8.
#include "serialize/training_data/data_content.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <optional>
#include <string>
#include <vector>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/json.h"
#include "text/repeated_keys.h"

namespace tessera {
namespace {

using namespace std::string_view_literals;

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
constexpr std::string_view kPlain = "option 'kind' plain learns the characters as they are";

Status refuse(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

struct Magic {
  std::string_view bytes, format, remedy;
};
constexpr std::string_view kUnpack = "unpack it first", kTable =
                                                            "write it as JSON lines first (pandas: "
                                                            "to_json(FILE, orient='records', lines=True))";
constexpr std::string_view kOrder = "plain text: were model and text given in the wrong order?";
// 32-bit marks first, since little-endian UTF-32 begins with UTF-16's.
constexpr Magic kMagics[] = {
    {"\xff\xfe\0\0"sv, "UTF-32", "convert it (iconv -f UTF-32 -t UTF-8)"},
    {"\0\0\xfe\xff"sv, "UTF-32", "convert it (iconv -f UTF-32 -t UTF-8)"},
    {"\xff\xfe"sv, "UTF-16", "convert it (iconv -f UTF-16 -t UTF-8)"},
    {"\xfe\xff"sv, "UTF-16", "convert it (iconv -f UTF-16 -t UTF-8)"},
    {"TSRMODEL"sv, "a model's file (TSRMODEL)", kOrder},
    {"GGUF"sv, "a model's file (GGUF)", kOrder},
    {"\x1f\x8b"sv, "gzip", "unpack it first (gunzip)"},
    {"\x28\xb5\x2f\xfd"sv, "Zstandard", "unpack it first (zstd -d)"},
    {"\xfd"
     "7zXZ"sv,
     "xz", "unpack it first (xz -d)"},
    {"BZh"sv, "bzip2", "unpack it first (bunzip2)"},
    {"\x04\x22\x4d\x18"sv, "LZ4", "unpack it first (lz4 -d)"},
    {"7z\xbc\xaf\x27\x1c"sv, "7z", kUnpack},
    {"Rar!"sv, "RAR", kUnpack},
    {"PK\x03\x04"sv, "a zip archive (as .docx, .xlsx, .npz and .pt are)",
     "take the text or the rows out of it"},
    {"PK\x05\x06"sv, "an empty zip archive", "take the text or the rows out of it"},
    {"PAR1"sv, "Parquet", kTable},
    {"ARROW1"sv, "Arrow", kTable},
    {"\xff\xff\xff\xff"sv, "an Arrow stream", kTable},
    {"FEA1"sv, "Feather", kTable},
    {"ORC"sv, "ORC", kTable},
    {"Obj\x01"sv, "Avro", kTable},
    {"SQLite format 3\0"sv, "an SQLite database",
     "take the rows out of it (sqlite3 -json FILE 'SELECT ...')"},
    {"\x89HDF"sv, "HDF5", kTable},
    {"\x93NUMPY"sv, "a NumPy array", "give token ids through the library (tsr_dataset_new_tokens)"},
    {"%PDF-"sv, "PDF", "take its text out (pdftotext)"},
    {"\xd0\xcf\x11\xe0"sv, "an old Office document", "save it as text"},
    {"{\\rtf"sv, "RTF", "save it as text"},
    {"\x89PNG"sv, "a PNG image", "give text"},
    {"\xff\xd8\xff"sv, "a JPEG image", "give text"},
    {"\x7f"
     "ELF"sv,
     "a program", "give text"},
    {"\x80\x02"sv, "a Python pickle", "write it as JSON lines first"},
    {"\x80\x03"sv, "a Python pickle", "write it as JSON lines first"},
    {"\x80\x04"sv, "a Python pickle", "write it as JSON lines first"},
    {"\x80\x05"sv, "a Python pickle", "write it as JSON lines first"},
};

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

size_t skip_space(std::string_view text, size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

std::string_view without_mark(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return text;
}

// The place after the string that begins at `at`; npos: it does not end.
size_t string_end(std::string_view text, size_t at, char quote = '"') {
  for (size_t i = at + 1; i < text.size(); ++i) {
    if (text[i] == '\\')
      ++i;
    else if (text[i] == quote)
      return i + 1;
    else if (text[i] == '\n')
      return std::string_view::npos;
  }
  return std::string_view::npos;
}

// Whether an object begins at `at`: {} or {"key": with those quotes. A truncated string counts.
bool begins_object(std::string_view text, size_t at, bool is_whole, char quote = '"') {
  if (at >= text.size() || text[at] != '{') return false;
  at = skip_space(text, at + 1);
  if (at >= text.size()) return !is_whole;
  if (text[at] == '}') return quote == '"';
  if (text[at] != quote) return false;
  at = string_end(text, at, quote);
  if (at == std::string_view::npos) return !is_whole && text.find('\n') == std::string_view::npos;
  at = skip_space(text, at);
  return at < text.size() ? text[at] == ':' : !is_whole;
}

// Length of the first UTF-8 character; 0: invalid (Unicode 15, table 3-7).
size_t character_size(std::string_view text) {
  const auto byte = [&](size_t at) { return at < text.size() ? static_cast<unsigned char>(text[at]) : 0; };
  const auto is_next = [&](size_t at, int low, int high) { return byte(at) >= low && byte(at) <= high; };
  const int first = byte(0);
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return is_next(1, 0x80, 0xBF) ? 2 : 0;
  if (first >= 0xE0 && first <= 0xEF)
    return is_next(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF) && is_next(2, 0x80, 0xBF) ? 3
                                                                                                          : 0;
  if (first >= 0xF0 && first <= 0xF4)
    return is_next(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF) && is_next(2, 0x80, 0xBF) &&
                   is_next(3, 0x80, 0xBF)
               ? 4
               : 0;
  return 0;
}

bool is_json(std::string_view text) { return parse_json_with_last_keys(text, "").ok(); }

// The contents of an array without objects; "": not a JSON array.
std::string_view other_array(std::string_view text, bool is_whole) {
  const size_t first = skip_space(text, skip_space(text, 0) + 1);
  if (first >= text.size()) return "";
  const char c = text[first];
  const bool numbers = c == '[' || c == '-' || (c >= '0' && c <= '9');
  if (c == '"') {
    const size_t end = string_end(text, first);
    if (end == std::string_view::npos) return "";
    const size_t next = skip_space(text, end);
    if (next < text.size() && (text[next] == ',' || text[next] == ']') && (!is_whole || is_json(text)))
      return "texts";
    return "";
  }
  if (is_whole) return !is_json(text) ? "" : c == ']' ? "nothing" : numbers ? "numbers or arrays" : "values";
  return numbers && text.substr(0, 65536).find_first_not_of("0123456789eE+-., \t\r\n[]") == text.npos
             ? "numbers or arrays"
             : "";
}

// --- tables

// Fields of a table's first line, without quotes; `end` is the place after it. Quoted fields may contain line ends.
std::vector<std::string> record_at(std::string_view text, size_t& end, char separator) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  size_t at = end;
  for (; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '"')
      quoted = !quoted;
    else if (!quoted && c == '\n')
      break;
    else if (!quoted && c == separator)
      fields.emplace_back();
    else if (c != '\r')
      fields.back() += c;
  }
  end = std::min(at + 1, text.size());
  return fields;
}

bool is_column_name(const std::string& name) {
  const std::string_view word = trim(name);
  return !word.empty() && word.size() <= 40 && std::isalpha(static_cast<unsigned char>(word[0])) != 0 &&
         std::ranges::all_of(word,
                             [](char c) {
                               return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
                                      c == '-' || c == '.' || c == ' ';
                             }) &&
         std::ranges::count(word, ' ') <= 2;
}

bool is_known_column(std::string name) {
  static constexpr std::string_view kKnown[] = {
      "text",     "prompt",        "completion", "instruction",  "input",   "output",   "response",
      "question", "answer",        "query",      "messages",     "chosen",  "rejected", "label",
      "content",  "conversations", "sentence",   "conversation", "context", "target",   "source",
      "category", "system",        "user",       "assistant"};
  std::ranges::transform(name, name.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return std::ranges::count(kKnown, trim(name)) > 0;
}

// The header of a table with that separator; "": not a table. Known column
// names need one further line, others ten, all with equal field counts.
std::string table_header(std::string_view text, bool is_whole, char separator) {
  size_t at = 0;
  const std::vector<std::string> header = record_at(text, at, separator);
  if (header.size() < 2 || !std::ranges::all_of(header, is_column_name)) return "";
  const bool is_known = std::ranges::any_of(header, is_known_column);
  // Verse has a comma per line, but more than one word before it.
  if (!is_known && std::ranges::any_of(header, [](const std::string& name) {
        return trim(name).find(' ') != std::string_view::npos;
      }))
    return "";
  const size_t wanted = is_known ? 1 : 10;
  size_t records = 0;
  while (at < text.size() && records < 10) {
    const std::vector<std::string> record = record_at(text, at, separator);
    if (at == text.size() && !is_whole) break;  // truncated by the head
    if (record.size() == 1 && trim(record[0]).empty()) continue;
    if (record.size() != header.size()) return "";
    ++records;
  }
  return records >= wanted ? join(header, std::string(1, separator)) : "";
}

bool has_suffix(std::string_view path, std::string_view suffix) {
  if (path.size() < suffix.size()) return false;
  return std::ranges::equal(path.substr(path.size() - suffix.size()), suffix,
                            [](unsigned char a, unsigned char b) { return std::tolower(a) == b; });
}

Status check_no_table(std::string_view text, bool is_whole, std::string_view name, std::string_view path) {
  std::string header, format_name;
  for (const auto& [separator, of] : {std::pair('\t', "tab"), {',', "comma"}, {';', "semicolon"}}) {
    if (header = table_header(text.substr(0, std::min<size_t>(text.size(), 65536)),
                              is_whole && text.size() <= 65536, separator);
        header.empty())
      continue;
    format_name = format("a table of {}-separated values (columns {})", of, quote(header, 100));
    break;
  }
  for (const std::string_view suffix : {".csv", ".tsv"})
    if (format_name.empty() && has_suffix(path, suffix))
      format_name = format("a table by its name ({})", suffix);
  if (format_name.empty()) return {};
  return refuse(format("{} is {}, which is not read: {}; {}", name, format_name, kTable, kPlain));
}

}  // namespace

Status check_no_binary(std::string_view head, std::string_view name) {
  for (const Magic& magic : kMagics) {
    if (!head.starts_with(magic.bytes)) continue;
    if (magic.bytes == "BZh" && (head.size() < 10 || head.substr(4, 6) != "1AY&SY")) continue;
    if (magic.bytes == "ORC" && head.substr(0, 1024).find('\0') == head.npos) continue;
    return refuse(format("{} is {}, which is not read, wanted UTF-8 text or rows of JSON: {}", name,
                         magic.format, magic.remedy));
  }
  if (head.size() > 10 && head[8] == '{' && head[9] == '"' && head.substr(4, 4) == "\0\0\0\0"sv)
    return refuse(format("{} is a model's file (safetensors), which is not read, wanted {}", name, kOrder));
  if (const size_t zero = head.find('\0'); zero != head.npos) {
    const bool wide = zero <= 1 && head.size() > zero + 4 && head[zero + 1] != '\0' &&
                      head[zero + 2] == '\0' && head[zero + 3] != '\0' && head[zero + 4] == '\0';
    return refuse(
        format("{} is {} (byte {} is 0), which is not read, wanted UTF-8 text or rows of JSON{}", name,
               wide ? "UTF-16" : "binary", zero,
               wide ? format(": convert it (iconv -f UTF-16{} -t UTF-8)", zero == 1 ? "LE" : "BE") : ""));
  }
  return {};
}

Result<bool> holds_rows(std::string_view head, bool is_whole, std::string_view name, std::string_view path,
                        bool takes_tables) {
  TSR_RETURN_IF_ERROR(check_no_binary(head, name));
  const std::string_view text = without_mark(head);
  const size_t first = skip_space(text, 0);
  if (first < text.size() && text[first] == '[') {
    const size_t inner = skip_space(text, first + 1);
    if (begins_object(text, inner, is_whole)) return true;
    if (const std::string_view what = other_array(text, is_whole); !what.empty())
      return refuse(
          format("{} is a JSON array of {}, wanted an array of rows such as {\"text\": ...} or "
                 "{\"messages\": [...]}; {}",
                 name, what, kPlain));
    if (begins_object(text, inner, is_whole, '\''))
      return refuse(
          format("{} has rows as Python prints them, with single quotes: write them as JSON (json.dumps); {}",
                 name, kPlain));
  }
  if (begins_object(text, first, is_whole)) return true;
  if (begins_object(text, first, is_whole, '\''))
    return refuse(
        format("{} has rows as Python prints them, with single quotes: write them as JSON (json.dumps); {}",
               name, kPlain));
  for (const std::string_view suffix : {".json", ".jsonl", ".ndjson"})
    if (has_suffix(path, suffix))
      return refuse(
          format("{} is named {} and holds no rows of JSON: wanted objects, one a line or in one array; {}",
                 name, suffix, kPlain));
  if (!takes_tables) TSR_RETURN_IF_ERROR(check_no_table(text, is_whole, name, path));
  return false;
}

RowLayout row_layout(std::string_view head) {
  const std::string_view text = without_mark(head);
  const size_t first = skip_space(text, 0);
  if (first >= text.size()) return RowLayout::kLines;
  if (text[first] == '[') {
    const size_t inner = skip_space(text, first + 1);
    return inner < text.size() && (text[inner] == '{' || text[inner] == ']') ? RowLayout::kArray
                                                                             : RowLayout::kLines;
  }
  if (!begins_object(text, first, false)) return RowLayout::kLines;
  // The first object: whether it spans lines, and what follows it on its line.
  int64_t depth = 0;
  bool in_string = false, spans = false;
  for (size_t at = first; at < text.size(); ++at) {
    const char c = text[at];
    if (in_string) {
      if (c == '\\')
        ++at;
      else if (c == '"')
        in_string = false;
      else if (c == '\n')
        return RowLayout::kLines;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == '\n') spans = true;
    if (c == '{' || c == '[') ++depth;
    if ((c == '}' || c == ']') && --depth == 0) {
      if (spans) return RowLayout::kStream;
      while (at + 1 < text.size() && (text[at + 1] == ' ' || text[at + 1] == '\t' || text[at + 1] == '\r'))
        ++at;
      return at + 1 < text.size() && text[at + 1] == '{' ? RowLayout::kStream : RowLayout::kLines;
    }
  }
  return spans ? RowLayout::kStream : RowLayout::kLines;
}

Status check_utf8(std::string_view text, std::string_view name) {
  size_t valid = 0;
  while (valid < text.size()) {
    const size_t size = character_size(text.substr(valid));
    if (size == 0) break;
    valid += size;
  }
  if (valid == text.size()) return {};
  return refuse(
      format("{}: byte {} (0x{}) is not UTF-8, wanted UTF-8 text: convert it (iconv -f ISO-8859-1 -t UTF-8, "
             "say), or cut it between characters",
             name, valid, [&] {
               constexpr std::string_view kDigits = "0123456789abcdef";
               const auto byte = static_cast<unsigned char>(text[valid]);
               return std::string{kDigits[byte >> 4], kDigits[byte & 15]};
             }()));
}

}  // namespace tessera

#include "request_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <limits>
#include <optional>
#include <set>

#include "usage.h"

namespace cli {

namespace {

// Longest line, and deepest nesting, that is read.
constexpr size_t kMostLine = size_t{16} << 20;
constexpr int kMostDepth = 64;

struct Known {
  const char* name;
  enum class Type { kInteger, kReal, kFlag, kText, kStop, kIds, kSchema, kArray, kObject } type;
  enum class Of { kAll, kMessages, kConstraint, kAdapter } of = Of::kAll;
};
using Type = Known::Type;
using Of = Known::Of;

// Options of tsr_engine_submit, except "logits" and "keep", which need a program that answers; of "adapter" the
// path, or a name.
constexpr Known kKnown[] = {
    {"max_tokens", Type::kInteger},
    {"min_tokens", Type::kInteger},
    {"temperature", Type::kReal},
    {"top_k", Type::kInteger},
    {"top_p", Type::kReal},
    {"min_p", Type::kReal},
    {"typical_p", Type::kReal},
    {"repetition_penalty", Type::kReal},
    {"presence_penalty", Type::kReal},
    {"frequency_penalty", Type::kReal},
    {"penalty_last", Type::kInteger},
    {"logit_bias", Type::kObject},
    {"seed", Type::kInteger},
    {"ignore_eos", Type::kFlag},
    {"stop", Type::kStop},
    {"stop_ids", Type::kIds},
    {"n", Type::kInteger},
    {"best_of", Type::kInteger},
    {"logprobs", Type::kInteger},
    {"prompt_logprobs", Type::kInteger},
    {"priority", Type::kInteger},
    {"adapter", Type::kText, Of::kAdapter},
    {"special", Type::kFlag},
    {"json_schema", Type::kSchema, Of::kConstraint},
    {"json", Type::kFlag, Of::kConstraint},
    {"regex", Type::kText, Of::kConstraint},
    {"choices", Type::kArray, Of::kConstraint},
    {"grammar", Type::kText, Of::kConstraint},
    {"name", Type::kText, Of::kMessages},
    {"template", Type::kText, Of::kMessages},
    {"tools", Type::kArray, Of::kMessages},
    {"documents", Type::kArray, Of::kMessages},
    {"variables", Type::kObject, Of::kMessages},
    {"now", Type::kInteger, Of::kMessages},
    {"continue_final_message", Type::kFlag, Of::kMessages},
};

std::string wanted(Type type) {
  switch (type) {
    case Type::kInteger: return "an integer of 64 bits";
    case Type::kReal: return "a number";
    case Type::kFlag: return "true or false";
    case Type::kText: return "a text without NUL";
    case Type::kStop: return "a text, or an array of texts";
    case Type::kIds: return "an array of token ids";
    case Type::kSchema: return "a JSON schema: an object, true or false";
    case Type::kArray: return "an array";
    case Type::kObject: return "an object";
  }
  return "";
}

bool is_integer(const Json& value) {
  return value.is_number_integer() &&
         (!value.is_number_unsigned() ||
          value.get<uint64_t>() <= static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
}

bool is_id(const Json& value) {
  return is_integer(value) && value.get<int64_t>() >= 0 &&
         value.get<int64_t>() <= std::numeric_limits<int32_t>::max();
}

bool is_text(const Json& value) { return value.is_string(); }

bool has_type(const Json& value, Type type) {
  switch (type) {
    case Type::kInteger: return is_integer(value);
    case Type::kReal: return value.is_number();
    case Type::kFlag: return value.is_boolean() || value == 0 || value == 1;
    case Type::kText: return is_text(value) && value.get<std::string>().find('\0') == std::string::npos;
    case Type::kStop: return is_text(value) || (value.is_array() && std::ranges::all_of(value, is_text));
    case Type::kIds: return value.is_array() && std::ranges::all_of(value, is_id);
    case Type::kSchema: return value.is_object() || value.is_boolean();
    case Type::kArray: return value.is_array();
    case Type::kObject: return value.is_object();
  }
  return false;
}

void set_option(const Options& options, const Known& key, const Json& value) {
  switch (key.type) {
    case Type::kInteger: return set(options, key.name, value.get<int64_t>());
    case Type::kReal: return set(options, key.name, value.get<double>());
    case Type::kFlag: return set(options, key.name, int64_t{value == true || value == 1});
    case Type::kText: return set(options, key.name, value.get<std::string>());
    case Type::kStop: return set(options, key.name, (is_text(value) ? Json::array({value}) : value).dump());
    case Type::kIds: {
      std::string ids;
      for (const Json& id : value) ids += (ids.empty() ? "" : ",") + std::to_string(id.get<int32_t>());
      return set(options, key.name, ids);
    }
    case Type::kSchema:
    case Type::kArray:
    case Type::kObject: return set(options, key.name, value.dump());
  }
}

// Throws a text without the place.
Json parse_object(const std::string& line) {
  std::vector<std::set<std::string>> keys;  // of each object that is open
  const auto check = [&keys](int depth, Json::parse_event_t event, Json& value) {
    const bool begins =
        event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    if (begins && depth >= kMostDepth)
      throw Error(TSR_INVALID_ARGUMENT, "its JSON nests deeper than " + std::to_string(kMostDepth));
    if (event == Json::parse_event_t::object_start) keys.emplace_back();
    if (event == Json::parse_event_t::object_end) keys.pop_back();
    if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
      throw Error(TSR_INVALID_ARGUMENT,
                  "the key " + quoted(value.get<std::string>()) + " stands twice in an object, wanted it once");
    return true;
  };
  try {
    Json object = Json::parse(line, check);
    if (!object.is_object())
      throw Error(TSR_INVALID_ARGUMENT,
                  "found " + quoted(line) + ", wanted a JSON object such as {\"prompt\": \"Once upon\"}");
    return object;
  } catch (const Json::exception& error) {
    // "[json.exception.parse_error.101] parse error at line 1, column 9: syntax error ..."
    std::string what = error.what();
    if (const size_t column = what.find("column "); column != std::string::npos) what.erase(0, column);
    throw Error(TSR_INVALID_ARGUMENT, "found " + quoted(line) + ", wanted a JSON object: " + what);
  }
}

// The prompt, of which there is one.
void take_prompt(const Json& object, Request& request) {
  struct Prompt {
    const char* name;
    Request::Kind kind;
  };
  static constexpr Prompt kPrompts[] = {
      {"prompt", Request::Kind::kText}, {"messages", Request::Kind::kMessages}, {"ids", Request::Kind::kIds}};
  const Prompt* found = nullptr;
  for (const Prompt& prompt : kPrompts) {
    if (!object.contains(prompt.name)) continue;
    if (found != nullptr)
      throw Error(TSR_INVALID_ARGUMENT, std::string("found '") + found->name + "' and '" + prompt.name +
                                            "', wanted one of prompt, messages, ids");
    found = &prompt;
  }
  if (found == nullptr)
    throw Error(TSR_INVALID_ARGUMENT,
                "nothing to continue: wanted one of prompt (a text), messages (a "
                "conversation) and ids (token ids)");
  request.kind = found->kind;
  const Json& value = object[found->name];
  const auto refuse = [&](const char* what) {
    throw Error(TSR_INVALID_ARGUMENT,
                std::string("'") + found->name + "' is " + quoted(value.dump()) + ", wanted " + what);
  };
  switch (request.kind) {
    case Request::Kind::kText:
      if (!is_text(value)) refuse("a text");
      request.text = value.get<std::string>();
      break;
    case Request::Kind::kMessages:
      if (!value.is_array() || value.empty()) refuse("an array of messages: [{\"role\", \"content\"}]");
      request.text = value.dump();
      break;
    case Request::Kind::kIds:
      if (!value.is_array() || value.empty() || !std::ranges::all_of(value, is_id))
        refuse("an array of token ids such as [1, 15043]");
      request.ids = value.get<std::vector<int32_t>>();
      break;
  }
}

void refuse_unknown(const std::string& key) {
  std::string names = "id prompt messages ids";
  for (const Known& known : kKnown) names += std::string(" ") + known.name;
  const std::string hint = text(tsr_word_hint, "option", key.c_str(), names.c_str());
  throw Error(TSR_INVALID_ARGUMENT, "unknown key " + quoted(key) + "; " +
                                        (hint.empty() ? "`tessera generate --help` lists them" : hint));
}

void take_option(const std::string& key, const Json& value, Request& request) {
  const auto known = std::ranges::find_if(kKnown, [&](const Known& it) { return it.name == key; });
  if (known == std::end(kKnown)) refuse_unknown(key);
  if (known->of == Of::kMessages && request.kind != Request::Kind::kMessages)
    throw Error(TSR_INVALID_ARGUMENT, "'" + key + "' belongs to messages, which this line lacks");
  if (!has_type(value, known->type))
    throw Error(TSR_INVALID_ARGUMENT,
                "'" + key + "' is " + quoted(value.dump()) + ", wanted " + wanted(known->type));
  if (known->of == Of::kAdapter) {
    request.adapter = value.get<std::string>();
    if (request.adapter.empty())
      throw Error(TSR_INVALID_ARGUMENT,
                  "'adapter' is empty, wanted a path, or a name that --adapter NAME=PATH gives");
    return;
  }
  set_option(request.options, *known, value);
  request.is_constrained |= known->of == Of::kConstraint;
  if (key == "n") request.texts = value.get<int64_t>();
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

}  // namespace

RequestFile::RequestFile(const std::string& path, const std::string& folder)
    : name_(path == "-" ? "standard input" : path) {
  File opened;
  std::FILE* input = stdin;
  if (path != "-") {
    opened.reset(std::fopen(path.c_str(), "rb"));
    input = opened.get();
  }
  if (input == nullptr) throw Error(TSR_NOT_FOUND, "cannot open " + name_ + ": " + std::strerror(errno));
  struct stat about {};
  if (fstat(fileno(input), &about) != 0)
    throw Error(TSR_IO, "cannot read " + name_ + ": " + std::strerror(errno));
  // A terminal's input ends; of /dev/zero and /dev/random there is always more.
  if (S_ISCHR(about.st_mode) && isatty(fileno(input)) == 0)
    throw Error(TSR_INVALID_ARGUMENT, name_ + " is a device; give a file or a pipe");
  if (opened && S_ISREG(about.st_mode)) {
    check_lines(input, nullptr);
    file_ = std::move(opened);
  } else {
    std::string copy = folder + "/.requests-XXXXXX";
    const int descriptor = mkstemp(copy.data());
    if (descriptor < 0) throw Error(TSR_IO, "cannot write in " + folder + ": " + std::strerror(errno));
    unlink(copy.c_str());
    file_.reset(fdopen(descriptor, "w+b"));
    check_lines(input, file_.get());
  }
  std::rewind(file_.get());
  line_ = 0;
  if (count_ == 0)
    throw Error(TSR_INVALID_ARGUMENT, name_ + " holds no request, wanted a JSON object a line");
}

std::string RequestFile::place(int64_t line) const { return name_ + ": line " + std::to_string(line); }

std::string RequestFile::folder() const {
  const std::string folder = std::filesystem::path(name_).parent_path().string();
  return folder.empty() ? "." : folder;
}

// A line without its end; false where there is none.
bool RequestFile::read_line(std::FILE* file, std::string& line) {
  line.clear();
  ++line_;
  int c = 0;
  while ((c = getc_unlocked(file)) != EOF && c != '\n') {
    if (line.size() == kMostLine)
      throw Error(TSR_INVALID_ARGUMENT,
                  place(line_) + " is longer than " + bytes_text(kMostLine) + ", the most that is read");
    line += static_cast<char>(c);
  }
  if (std::ferror(file)) throw Error(TSR_IO, "cannot read " + name_ + ": " + std::strerror(errno));
  if (line_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // a byte-order mark
  return c != EOF || !line.empty();
}

void RequestFile::check_lines(std::FILE* input, std::FILE* copy) {
  std::optional<int64_t> empty;
  std::set<std::string> said;  // of adapters
  for (std::string line; read_line(input, line);) {
    if (is_blank(line)) {
      if (!empty) empty = line_;
      continue;
    }
    // Result i is of line i.
    if (empty) throw Error(TSR_INVALID_ARGUMENT, place(*empty) + " is empty, wanted a JSON object");
    const Request request = parse(line);
    if (!request.adapter.empty() && said.insert(request.adapter).second)
      adapters_.emplace_back(request.adapter, line_);
    ++count_;
    if (copy != nullptr &&
        (std::fwrite(line.data(), 1, line.size(), copy) < line.size() || std::fputc('\n', copy) == EOF))
      throw Error(TSR_IO, "cannot copy " + name_ + ": " + std::strerror(errno));
  }
  if (copy != nullptr && std::fflush(copy) != 0)
    throw Error(TSR_IO, "cannot copy " + name_ + ": " + std::strerror(errno));
}

bool RequestFile::next(Request& request) {
  std::string line;
  if (line_ == count_ || !read_line(file_.get(), line)) return false;
  request = parse(line);
  return true;
}

Request RequestFile::parse(const std::string& line) const {
  try {
    const Json object = parse_object(line);
    Request request;
    request.line = line_;
    request.options = make<Options>(tsr_options_new);
    take_prompt(object, request);
    for (const auto& [key, value] : object.items()) {
      if (key == "id")
        request.id = value;
      else if (key != "prompt" && key != "messages" && key != "ids")
        take_option(key, value, request);
    }
    return request;
  } catch (const Error& error) {
    throw Error(error.code(), place(line_) + ": " + error.what());
  }
}

std::string RequestFile::known_keys() {
  constexpr size_t kColumns = 120;
  std::string names;
  size_t begin = 0;  // of the last line
  for (const Known& known : kKnown) {
    if (!names.empty()) names += ", ";
    if (names.size() + std::strlen(known.name) > begin + kColumns) {
      names.back() = '\n';
      begin = names.size();
    }
    names += known.name;
  }
  return names;
}

}  // namespace cli

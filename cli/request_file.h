// RequestFile: texts to generate, a JSON object a line. It is read twice, so that a line that is wrong is told before
// anything is computed; one line at a time is in memory.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "command.h"

namespace cli {

struct Request {
  int64_t line = 0;  // from 1
  Json id;           // as the file has it; null: none
  enum class Kind { kText, kMessages, kIds } kind = Kind::kText;
  std::string text;  // the prompt, or the messages as JSON
  std::vector<int32_t> ids;
  Options options;      // of tsr_engine_submit, except "adapter"
  std::string adapter;  // as the file has it; empty: none
  int64_t texts = 1;
  bool is_constrained = false;  // says which texts are allowed
};

class RequestFile {
 public:
  // Checks all lines: that each is a request, the types of its options. What has no second reading ("-" for standard
  // input, pipes) is copied to a file without a name in `folder`.
  RequestFile(const std::string& path, const std::string& folder);

  int64_t count() const { return count_; }
  // The file's; "." of standard input.
  std::string folder() const;
  // What lines say under "adapter", each once with its first line, in the order of these.
  const std::vector<std::pair<std::string, int64_t>>& adapters() const { return adapters_; }
  // False after the last.
  bool next(Request& request);
  // "requests.jsonl: line 7": where messages say what is wrong.
  std::string place(int64_t line) const;

  // Names of the options that a line may have, in lines of help.
  static std::string known_keys();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  using File = std::unique_ptr<std::FILE, Close>;

  bool read_line(std::FILE* file, std::string& line);
  void check_lines(std::FILE* input, std::FILE* copy);
  Request parse(const std::string& line) const;

  std::string name_;
  File file_;
  std::vector<std::pair<std::string, int64_t>> adapters_;
  int64_t count_ = 0, line_ = 0;
};

}  // namespace cli

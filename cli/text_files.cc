#include "text_files.h"

#include <sys/stat.h>
#include <unistd.h>

#include "handle.h"

namespace cli {

std::string read_file(const std::string& path, int64_t most) {
  return text(tsr_text_read, path.c_str(), static_cast<size_t>(most));
}

void write_file(const std::string& path, const std::string& content) {
  check(tsr_text_write(content.data(), content.size(), path.c_str()));
}

bool is_input_piped() {
  struct stat about {};
  return fstat(STDIN_FILENO, &about) == 0 && (S_ISFIFO(about.st_mode) || S_ISREG(about.st_mode));
}

std::string read_piped_text() {
  std::string text = read_file("-");
  if (text.ends_with('\n')) text.pop_back();
  if (text.ends_with('\r')) text.pop_back();
  return text;
}

void check_text(const std::string& text, const std::string& path, const std::string& kind,
                bool takes_tables) {
  if (kind == "plain") return;
  const std::string name = path == "-" ? "standard input" : path;
  check(tsr_text_check(text.data(), text.size(), name.c_str(), takes_tables ? 1 : 0));
}

void add_text_kind(CLI::App& command, std::string& kind) {
  command
      .add_option("--kind", kind,
                  "auto: refuse rows of JSON, tables, binary files and invalid UTF-8; plain: one text, whatever its "
                  "content")
      ->check(CLI::IsMember({"auto", "plain"}))
      ->capture_default_str();
}

void check_output(const std::string& path, Output output) {
  if (path.empty()) return;
  if (path == "-")
    throw Error(TSR_INVALID_ARGUMENT,
                "'-' is not an output file: standard output holds what the command prints; give a file name (./- for "
                "a file named -)");
  check(output == Output::kModel ? tsr_model_check_path(path.c_str())
                                 : tsr_text_check_path(path.c_str(), output == Output::kText ? 1 : 0));
}

}  // namespace cli

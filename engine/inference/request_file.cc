#include "engine/inference/request_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <set>

#include "graph/base/text.h"
#include "serialize/atomic_file.h"

namespace tessera {
namespace {

constexpr size_t kMostLine = size_t{16} << 20;  // bytes

// Opens the file, or standard input; null if it cannot be opened.
File open_input(const std::string& path) {
  return File(path == "-" ? stdin : std::fopen(path.c_str(), "rb"));
}

Result<File> unnamed_file(const std::string& folder) {
  std::string name = folder + "/.requests-XXXXXX";
  const int descriptor = mkstemp(name.data());
  if (descriptor < 0) return io_error(folder, "cannot write in the folder");
  ::unlink(name.c_str());
  return File(fdopen(descriptor, "w+b"));
}

bool is_blank(const std::string& line) { return line.find_first_not_of(" \t\r") == std::string::npos; }

}  // namespace

Result<std::unique_ptr<RequestFile>> RequestFile::open(const std::string& path, const std::string& folder) {
  std::unique_ptr<RequestFile> made(new RequestFile(path == "-" ? "standard input" : path));
  File input = open_input(path);
  if (!input) return io_error(path, "cannot open the file of requests");
  struct stat about {};
  if (fstat(fileno(input.get()), &about) != 0) return io_error(made->name_, "cannot read");
  // A terminal's input ends; /dev/zero and /dev/random never do.
  if (S_ISCHR(about.st_mode) && isatty(fileno(input.get())) == 0)
    return Status(StatusCode::kInvalidArgument, format("{} is a device; give a file or a pipe", made->name_));
  if (path != "-" && S_ISREG(about.st_mode)) {
    TSR_RETURN_IF_ERROR(made->check_lines(input.get(), nullptr));
    made->file_ = std::move(input);
  } else {
    TSR_ASSIGN_OR_RETURN(made->file_, unnamed_file(folder));
    TSR_RETURN_IF_ERROR(made->check_lines(input.get(), made->file_.get()));
  }
  std::rewind(made->file_.get());
  made->line_ = 0;
  if (made->count_ == 0)
    return Status(StatusCode::kInvalidArgument,
                  format("{} holds no request, wanted a JSON object a line", made->name_));
  return made;
}

std::string RequestFile::place(int64_t line) const { return format("{}: line {}", name_, line); }

std::string RequestFile::folder() const { return parent_folder(name_); }

// Reads a line without its end; false at the end of the file.
Result<bool> RequestFile::read_line(std::FILE* file, std::string& line) {
  line.clear();
  ++line_;
  int c = 0;
  while ((c = getc_unlocked(file)) != EOF && c != '\n') {
    if (line.size() == kMostLine)
      return Status(StatusCode::kInvalidArgument,
                    format("{} is longer than {}, the most that is read", place(line_),
                           bytes_text(static_cast<int64_t>(kMostLine))));
    line += static_cast<char>(c);
  }
  if (std::ferror(file)) return io_error(name_, "cannot read");
  if (line_ == 1 && line.starts_with("\xef\xbb\xbf")) line.erase(0, 3);  // a byte-order mark
  return c != EOF || !line.empty();
}

Status RequestFile::check_lines(std::FILE* input, std::FILE* copy) {
  std::optional<int64_t> empty;
  std::set<std::string> said;  // adapters named so far
  for (std::string line;;) {
    TSR_ASSIGN_OR_RETURN(const bool is_there, read_line(input, line));
    if (!is_there) break;
    if (is_blank(line)) {
      if (!empty) empty = line_;
      continue;
    }
    // Result i belongs to line i.
    if (empty)
      return Status(StatusCode::kInvalidArgument, format("{} is empty, wanted a JSON object", place(*empty)));
    TSR_ASSIGN_OR_RETURN(const RequestRow row, parse(line));
    if (!row.adapter.empty() && said.insert(row.adapter).second) adapters_.emplace_back(row.adapter, line_);
    ++count_;
    if (copy != nullptr) TSR_RETURN_IF_ERROR(copy_line(line, copy));
  }
  return copy == nullptr || std::fflush(copy) == 0 ? Status() : io_error(name_, "cannot copy");
}

Status RequestFile::copy_line(const std::string& line, std::FILE* copy) const {
  const bool copied =
      std::fwrite(line.data(), 1, line.size(), copy) == line.size() && std::fputc('\n', copy) != EOF;
  return copied ? Status() : io_error(name_, "cannot copy");
}

Result<std::optional<RequestRow>> RequestFile::next() {
  if (line_ == count_) return std::optional<RequestRow>();
  std::string line;
  TSR_ASSIGN_OR_RETURN(const bool is_there, read_line(file_.get(), line));
  if (!is_there) return std::optional<RequestRow>();
  TSR_ASSIGN_OR_RETURN(RequestRow row, parse(line));
  return std::optional(std::move(row));
}

Result<RequestRow> RequestFile::parse(const std::string& line) const {
  Result<RequestRow> row = parse_request_row(line);
  if (!row.ok()) return row.status().with_context(place(line_));
  return row;
}

}  // namespace tessera

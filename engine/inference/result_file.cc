#include "engine/inference/result_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <span>

#include "engine/base/text_file.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"
#include "serialize/atomic_file.h"
#include "serialize/file_permissions.h"

namespace tessera {
namespace {

// Lines reach the system one by one: finished ones are kept, however the process ends.
Status write_line(std::FILE* file, const std::string& name, const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fputc('\n', file) != EOF &&
      std::fflush(file) == 0)
    return {};
  return Status(StatusCode::kIo, format("{}: cannot write a result: {}", name, std::strerror(errno)));
}

}  // namespace

Status OrderedLines::put(int64_t number, const std::string& line) {
  if (number != next_) {
    early_.emplace(number, line);
    return {};
  }
  TSR_RETURN_IF_ERROR(write_line(out_, name_, line));
  ++next_;
  for (auto it = early_.begin(); it != early_.end() && it->first == next_; it = early_.erase(it), ++next_)
    TSR_RETURN_IF_ERROR(write_line(out_, name_, it->second));
  return {};
}

Result<std::unique_ptr<ResultFile>> ResultFile::create(const std::string& path) {
  std::unique_ptr<ResultFile> made(new ResultFile(path == "-" ? "" : path));
  if (made->path_.empty()) {
    made->file_.reset(stdout);
    made->ordered_ = std::make_unique<OrderedLines>(stdout, "standard output");
    return made;
  }
  if (is_own_file(path)) {
    TSR_RETURN_IF_ERROR(AtomicFile::check(path));
    TSR_RETURN_IF_ERROR(made->open_part());
    return made;
  }
  TSR_ASSIGN_OR_RETURN(const int descriptor, open_in_place(path));
  made->file_.reset(fdopen(descriptor, "wb"));
  made->ordered_ = std::make_unique<OrderedLines>(made->file_.get(), path);
  return made;
}

// Gives the part the permissions of the final file.
Status ResultFile::open_part() {
  const std::string part = path_ + ".part";
  struct stat found {};
  if (lstat(part.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0) ::unlink(part.c_str());
  const mode_t mode = FilePermissions::of(path_) ? 0600 : 0666;
  const int descriptor = ::open(part.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, mode);
  if (descriptor < 0 && errno == EEXIST)
    return Status(kExists,
                  format("{} is there: results of a run that did not end. Move it away, or delete it", part));
  if (descriptor < 0) return io_error(part, "cannot write");
  file_.reset(fdopen(descriptor, "wb"));
  part_ = part;
  return {};
}

ResultFile::~ResultFile() {
  if (!part_.empty() && last_ == 0) ::unlink(part_.c_str());
}

Status ResultFile::put(int64_t number, const std::string& line) {
  if (ordered_) return ordered_->put(number, line);
  TSR_RETURN_IF_ERROR(write_line(file_.get(), part_, line));
  is_sorted_ &= number == last_ + 1;
  last_ = number;
  return {};
}

Status ResultFile::finish() {
  if (ordered_) return {};
  if (!is_sorted_) {
    if (const Status sorted = sort_part(); !sorted.ok())
      return Status(sorted.code(),
                    format("{}; the results, not in order, are in {}", sorted.message(), part_));
    file_.reset();
    ::unlink(part_.c_str());
    return {};
  }
  if (const auto old = FilePermissions::of(path_)) old->apply(fileno(file_.get()));
  file_.reset();
  if (std::rename(part_.c_str(), path_.c_str()) != 0)
    return Status(StatusCode::kIo,
                  format("{}: cannot write: {}; the results are in {}", path_, std::strerror(errno), part_));
  return {};
}

Status ResultFile::sort_part() {
  constexpr size_t kNumber = sizeof "{\"line\":" - 1;
  TSR_ASSIGN_OR_RETURN(AtomicFile sorted, AtomicFile::create(path_));
  std::map<int64_t, std::string> early;
  std::ifstream input(part_, std::ios::binary);
  int64_t next = 1;
  for (std::string line; std::getline(input, line);) {
    early.emplace(parse_i64(line.substr(kNumber, line.find_first_of(",}", kNumber) - kNumber)).value_or(0),
                  line + '\n');
    for (auto it = early.begin(); it != early.end() && it->first == next; it = early.erase(it), ++next)
      TSR_RETURN_IF_ERROR(sorted.append(std::as_bytes(std::span(it->second))));
  }
  return input.bad() ? io_error(part_, "cannot read") : sorted.commit();
}

}  // namespace tessera

#include "result_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "command.h"

namespace cli {

namespace {

// Lines reach the system one by one: what is done is kept, whatever ends the process.
void write_line(std::FILE* file, const std::string& name, const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fputc('\n', file) != EOF &&
      std::fflush(file) == 0)
    return;
  throw Error(TSR_IO, name + ": cannot write a result: " + std::strerror(errno));
}

}  // namespace

void OrderedLines::put(int64_t number, const std::string& line) {
  if (number != next_) {
    early_.emplace(number, line);
    return;
  }
  write_line(out_, name_, line);
  ++next_;
  for (auto it = early_.begin(); it != early_.end() && it->first == next_; it = early_.erase(it), ++next_)
    write_line(out_, name_, it->second);
}

ResultFile::ResultFile(const std::string& path) : path_(path == "-" ? "" : path) {
  if (path_.empty()) {
    file_.reset(stdout);
    ordered_ = std::make_unique<OrderedLines>(stdout, "standard output");
    return;
  }
  check_output(path_, Output::kText);
  if (!is_own_file(path_)) {
    file_ = open_in_place(path_);
    ordered_ = std::make_unique<OrderedLines>(file_.get(), path_);
    return;
  }
  part_ = path_ + ".part";
  struct stat found {};
  if (lstat(part_.c_str(), &found) == 0 && S_ISREG(found.st_mode) && found.st_size == 0) unlink(part_.c_str());
  file_ = make_file(part_, path_);
  if (file_ == nullptr && errno == EEXIST)
    throw Error(TSR_EXISTS,
                part_ + " is there: results of a run that did not end. Move it away, or delete it");
  if (file_ == nullptr) throw Error(TSR_IO, part_ + ": cannot write: " + std::strerror(errno));
}

ResultFile::~ResultFile() {
  if (!part_.empty() && last_ == 0) unlink(part_.c_str());
}

void ResultFile::put(int64_t number, const std::string& line) {
  if (ordered_) return ordered_->put(number, line);
  write_line(file_.get(), part_, line);
  is_sorted_ &= number == last_ + 1;
  last_ = number;
}

void ResultFile::finish() {
  if (ordered_) return;
  file_.reset();
  const std::string sorted = is_sorted_ ? part_ : sort_part();
  if (!put_in_place(sorted, path_))
    throw Error(TSR_IO, path_ + ": cannot write: " + std::strerror(errno) + "; the results are in " + part_);
  if (!is_sorted_) unlink(part_.c_str());
}

std::string ResultFile::sort_part() {
  std::string sorted;
  try {
    std::ifstream input(part_, std::ios::binary);
    const File output = make_temporary(path_, sorted);
    OrderedLines lines(output.get(), sorted);
    constexpr size_t kNumber = sizeof "{\"line\":" - 1;
    for (std::string line; std::getline(input, line);) lines.put(std::stoll(line.substr(kNumber, 20)), line);
    return sorted;
  } catch (const std::exception& error) {
    if (!sorted.empty()) unlink(sorted.c_str());
    throw Error(TSR_IO,
                path_ + ": cannot write: " + error.what() + "; the results, not in order, are in " + part_);
  }
}

}  // namespace cli

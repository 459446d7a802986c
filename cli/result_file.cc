#include "result_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "command.h"

namespace cli {

namespace {

// Lines reach the system one by one: what is done is kept, whatever ends the process.
void write_line(std::FILE* file, const std::string& line) {
  if (std::fwrite(line.data(), 1, line.size(), file) == line.size() && std::fputc('\n', file) != EOF &&
      std::fflush(file) == 0)
    return;
  throw Error(TSR_IO, std::string("cannot write a result: ") + std::strerror(errno));
}

}  // namespace

void OrderedLines::put(int64_t number, const std::string& line) {
  if (number != next_) {
    early_.emplace(number, line);
    return;
  }
  write_line(out_, line);
  ++next_;
  for (auto it = early_.begin(); it != early_.end() && it->first == next_; it = early_.erase(it), ++next_)
    write_line(out_, it->second);
}

ResultFile::ResultFile(const std::string& path) : path_(path) {
  if (path_.empty()) {
    file_.reset(stdout);
    ordered_ = std::make_unique<OrderedLines>(stdout);
    return;
  }
  check_output(path_, Output::kText);
  std::error_code ignored;
  const std::filesystem::file_status status = std::filesystem::symlink_status(path_, ignored);
  if (std::filesystem::exists(status) && !std::filesystem::is_regular_file(status)) {
    file_.reset(std::fopen(path_.c_str(), "wb"));
    if (file_ == nullptr) throw Error(TSR_IO, path_ + ": cannot write: " + std::strerror(errno));
    ordered_ = std::make_unique<OrderedLines>(file_.get());
    return;
  }
  part_ = path_ + ".part";
  if (std::filesystem::is_empty(part_, ignored)) unlink(part_.c_str());
  file_.reset(std::fopen(part_.c_str(), "wbx"));
  if (file_ == nullptr && errno == EEXIST)
    throw Error(TSR_FAILED_PRECONDITION,
                part_ + " is there: results of a run that did not end. Move it away, or delete it");
  if (file_ == nullptr) throw Error(TSR_IO, part_ + ": cannot write: " + std::strerror(errno));
}

ResultFile::~ResultFile() {
  if (!part_.empty() && last_ == 0) unlink(part_.c_str());
}

void ResultFile::put(int64_t number, const std::string& line) {
  if (ordered_) return ordered_->put(number, line);
  write_line(file_.get(), line);
  is_sorted_ &= number == last_ + 1;
  last_ = number;
}

void ResultFile::finish() {
  if (ordered_) return;
  file_.reset();
  std::string sorted = part_;
  if (!is_sorted_) sort_into(sorted = path_ + ".tmp-" + std::to_string(getpid()));
  if (std::rename(sorted.c_str(), path_.c_str()) != 0)
    throw Error(TSR_IO, path_ + ": cannot write: " + std::strerror(errno) + "; the results are in " + part_);
  if (!is_sorted_) unlink(part_.c_str());
}

void ResultFile::sort_into(const std::string& sorted) {
  try {
    std::ifstream input(part_, std::ios::binary);
    const File output(std::fopen(sorted.c_str(), "wb"));
    if (!output) throw Error(TSR_IO, std::strerror(errno));
    OrderedLines lines(output.get());
    constexpr size_t kNumber = sizeof "{\"line\":" - 1;
    for (std::string line; std::getline(input, line);) lines.put(std::stoll(line.substr(kNumber, 20)), line);
  } catch (const std::exception& error) {
    unlink(sorted.c_str());
    throw Error(TSR_IO,
                path_ + ": cannot write: " + error.what() + "; the results, not in order, are in " + part_);
  }
}

}  // namespace cli

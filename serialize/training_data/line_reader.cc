#include "serialize/training_data/line_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "text/json.h"

namespace tessera {
namespace {

constexpr size_t kBlock = size_t{1} << 20;
constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// Waits for a pipe's data or end, with cancellation points.
void wait_for_input(int descriptor) {
  constexpr int kLookMs = 20;
  pollfd waiting{descriptor, POLLIN, 0};
  for (;;) {
    const int ready = poll(&waiting, 1, kLookMs);
    if (ready > 0 || (ready < 0 && errno != EINTR)) return;
    cancellation_point();
  }
}

}  // namespace

Result<LineReader> LineReader::open(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : format("'{}'", path);
  const int descriptor = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0)
    return Status(errno == ENOENT ? StatusCode::kNotFound : StatusCode::kIo,
                  format("training data {}: cannot open: {}", name, std::strerror(errno)));
  struct stat about {};
  const bool known = fstat(descriptor, &about) == 0;
  LineReader reader(name, descriptor, !standard,
                    known && S_ISREG(about.st_mode) ? int64_t{about.st_size} : -1);
  if (known && (S_ISDIR(about.st_mode) || (S_ISCHR(about.st_mode) && isatty(descriptor) == 0)))
    return Status(StatusCode::kInvalidArgument, format("training data {} is a {}; give a file or a pipe",
                                                       name, S_ISDIR(about.st_mode) ? "folder" : "device"));
  return reader;
}

LineReader LineReader::of_text(std::string_view text) {
  LineReader reader("in memory", -1, false, static_cast<int64_t>(text.size()));
  reader.buffer_ = text;
  reader.begin_ = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  reader.position_ = reader.size_;
  return reader;
}

LineReader::LineReader(LineReader&& other) noexcept
    : name_(std::move(other.name_)),
      descriptor_(other.descriptor_),
      is_owned_(std::exchange(other.is_owned_, false)),
      size_(other.size_),
      position_(other.position_),
      line_(other.line_),
      buffer_(std::move(other.buffer_)),
      begin_(other.begin_),
      layout_(other.layout_),
      has_looked_(other.has_looked_),
      is_in_array_(other.is_in_array_),
      is_done_(other.is_done_) {}

LineReader::~LineReader() {
  if (is_owned_) ::close(descriptor_);
}

Result<bool> LineReader::fill() {
  if (descriptor_ < 0) return false;
  buffer_.erase(0, std::exchange(begin_, 0));
  const size_t had = buffer_.size();
  for (;;) {
    cancellation_point();
    if (size_ < 0) wait_for_input(descriptor_);
    buffer_.resize(had + kBlock);
    const ssize_t got = ::read(descriptor_, buffer_.data() + had, kBlock);
    buffer_.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (got < 0)
      return Status(StatusCode::kIo,
                    format("training data {}: cannot read: {}", name_, std::strerror(errno)));
    if (position_ == 0 && line_ == 0 && had == 0 && std::string_view(buffer_).starts_with(kByteOrderMark))
      begin_ = kByteOrderMark.size();
    position_ += got;
    return got > 0;
  }
}

// Reads enough to recognise the layout: the first line, or a block.
Status LineReader::look_at_head() {
  has_looked_ = true;
  for (;;) {
    const std::string_view head = std::string_view(buffer_).substr(begin_);
    if (head.size() >= kContentHead || trim(head.substr(0, head.rfind('\n') + 1)).size() > 1) break;
    TSR_ASSIGN_OR_RETURN(const bool more, fill());
    if (!more) break;
  }
  const std::string_view head = std::string_view(buffer_).substr(begin_, kContentHead);
  layout_ = row_layout(head);
  return check_no_binary(head, format("training data {}", name_));
}

Result<std::vector<LineReader::Line>> LineReader::read(size_t bytes) {
  if (!has_looked_) TSR_RETURN_IF_ERROR(look_at_head());
  return layout_ == RowLayout::kLines ? read_lines(bytes) : read_values(bytes);
}

Status LineReader::fail(std::string_view what) const {
  return Status(StatusCode::kInvalidArgument, format("training data {}: {}", name_, what));
}

Result<char> LineReader::next_character() {
  for (;;) {
    begin_ = std::min(buffer_.find_first_not_of(" \t\r\n", begin_), buffer_.size());
    if (begin_ < buffer_.size()) return buffer_[begin_];
    TSR_ASSIGN_OR_RETURN(const bool more, fill());
    if (!more) return '\0';
  }
}

Status LineReader::begin_value() {
  TSR_ASSIGN_OR_RETURN(char c, next_character());
  if (layout_ == RowLayout::kStream) {
    is_done_ = c == '\0';
    return {};
  }
  const bool is_first = !is_in_array_;
  if (is_first || c == ',') {  // the bracket, or a comma
    is_in_array_ = true, ++begin_;
    TSR_ASSIGN_OR_RETURN(c, next_character());
    if (c != ']' || !is_first)
      return c == '\0' ? fail("the file ends inside its array: it is cut off") : Status();
  }
  if (c == '\0') return fail(format("the file ends inside its array, behind row {}: it is cut off", line_));
  if (c != ']') return fail(format("behind row {} of the array is '{}', wanted , or ]", line_, c));
  is_done_ = true, ++begin_;
  TSR_ASSIGN_OR_RETURN(c, next_character());
  return c == '\0' ? Status() : fail(format("the file goes on behind the end of its array, with '{}'", c));
}

// The text of the value that begins here: to its closing bracket, or a scalar's separator.
Result<std::string> LineReader::take_value() {
  int64_t depth = 0;
  bool in_string = false;
  size_t size = 0;
  for (bool is_whole = false; !is_whole; ++size) {
    if (size > kMostJsonBytes)
      return Status(StatusCode::kCorrupt,
                    format("training data {} row {}: longer than {}, the most that a row may have", name_,
                           line_ + 1, bytes_text(int64_t{kMostJsonBytes})));
    while (begin_ + size >= buffer_.size()) {
      TSR_ASSIGN_OR_RETURN(const bool more, fill());
      if (!more) return fail(format("the file ends inside row {}: it is cut off", line_ + 1));
    }
    const char c = buffer_[begin_ + size];
    if (in_string) {
      if (c == '\\') ++size;
      in_string = c != '"';
      is_whole = !in_string && depth == 0;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      ++depth;
    } else if (c == '}' || c == ']') {
      if (depth == 0) break;
      is_whole = --depth == 0;
    } else if (depth == 0 && (c == ',' || c == ' ' || c == '\t' || c == '\r' || c == '\n')) {
      break;
    }
  }
  if (size == 0) return fail(format("row {} begins with '{}', wanted an object", line_ + 1, buffer_[begin_]));
  std::string value = buffer_.substr(begin_, size);
  begin_ += size;
  return value;
}

Result<std::vector<LineReader::Line>> LineReader::read_values(size_t bytes) {
  std::vector<Line> lines;
  for (size_t taken = 0; taken < bytes && !is_done_;) {
    TSR_RETURN_IF_ERROR(begin_value());
    if (is_done_) break;
    TSR_ASSIGN_OR_RETURN(std::string value, take_value());
    taken += value.size();
    lines.push_back({++line_, std::move(value)});
  }
  return lines;
}

Result<std::vector<LineReader::Line>> LineReader::read_lines(size_t bytes) {
  std::vector<Line> lines;
  size_t taken = 0;
  while (taken < bytes || lines.empty()) {
    size_t end = buffer_.find('\n', begin_);
    bool is_last = false;
    for (size_t looked = buffer_.size() - begin_; end == std::string::npos && !is_last;) {
      if (looked > kMostJsonBytes)
        return Status(StatusCode::kCorrupt,
                      format("training data {} line {}: longer than {}, the most that a line may have", name_,
                             line_ + 1, bytes_text(int64_t{kMostJsonBytes})));
      TSR_ASSIGN_OR_RETURN(const bool more, fill());
      is_last = !more;
      end = buffer_.find('\n', begin_ + looked);
      looked = buffer_.size() - begin_;
    }
    if (is_last && begin_ == buffer_.size()) break;
    if (is_last) end = buffer_.size();
    ++line_;
    std::string_view text = std::string_view(buffer_).substr(begin_, end - begin_);
    begin_ = std::min(end + 1, buffer_.size());
    if (!text.empty() && text.back() == '\r') text.remove_suffix(1);
    taken += text.size() + 1;
    if (!trim(text).empty()) lines.push_back({line_, std::string(text)});
    if (is_last) break;
  }
  return lines;
}

}  // namespace tessera

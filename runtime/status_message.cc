#include "runtime/status_message.h"

#include <optional>
#include <utility>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Removes the first line of `text` and returns it; nullopt: it has none.
std::optional<std::string_view> take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end + 1);
  return line;
}

}  // namespace

// A line with the code, one with each number, an empty one, and the message.
std::string to_message(const Status& status) {
  std::string text = format("{}\n", static_cast<int32_t>(status.code()));
  for (size_t at = 0; const std::string* key = status.number_key(at); ++at) text += format("{} {}\n", *key, *status.number(*key));
  return text + "\n" + std::string(status.message());
}

Status status_of_message(std::string_view text) {
  const Status strange(StatusCode::kInternal, "another process sends what this one does not know: start all with the same library");
  const auto first = take_line(text);
  const std::optional<int64_t> code = first ? parse_i64(*first) : std::nullopt;
  if (!code || *code < 0) return strange;
  std::vector<std::pair<std::string, int64_t>> numbers;
  for (auto line = take_line(text); !line || !line->empty(); line = take_line(text)) {
    if (!line) return strange;
    const size_t space = line->find(' ');
    const std::optional<int64_t> value = space == std::string_view::npos ? std::nullopt : parse_i64(line->substr(space + 1));
    if (!value) return strange;
    numbers.emplace_back(line->substr(0, space), *value);
  }
  if (*code == 0) return {};
  Status status(static_cast<StatusCode>(*code), std::string(text));
  for (const auto& [key, value] : numbers) status = status.with_number(key, value);
  return status;
}

}  // namespace tessera

#include "engine/base/agreement.h"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

#include "graph/base/text.h"
#include "runtime/status_message.h"
#include "text/json.h"

namespace tessera {

namespace {

// The first difference by name; empty: none.
std::string difference(const std::map<std::string, std::string>& first, const std::map<std::string, std::string>& mine) {
  const auto value_in = [](const std::map<std::string, std::string>& values, const std::string& name) {
    const auto found = values.find(name);
    return found == values.end() ? "none" : "'" + found->second.substr(0, 200) + "'";
  };
  std::map<std::string, std::string> all = first;
  all.insert(mine.begin(), mine.end());
  for (const auto& [name, value] : all)
    if (value_in(first, name) != value_in(mine, name))
      return format("{} is {} here, and {} in process 0", name, value_in(mine, name), value_in(first, name));
  return {};
}

}  // namespace

Status agree(Channel* channel, const Status& mine) {
  if (channel == nullptr) return mine;
  const auto code = static_cast<int32_t>(mine.code());
  std::vector<int32_t> codes(static_cast<size_t>(channel->transport().processes()));
  TSR_RETURN_IF_ERROR(channel->gather(std::as_bytes(std::span(&code, 1)), std::as_writable_bytes(std::span(codes))));
  const auto failed = std::ranges::find_if(codes, [](int32_t found) { return found != 0; });
  if (failed == codes.end()) return {};
  const auto process = static_cast<int32_t>(failed - codes.begin());
  TSR_ASSIGN_OR_RETURN(const std::string message, channel->broadcast_text(process, to_message(mine)));
  return status_of_message(message).with_context(format("process {}", process));
}

namespace {

Result<std::vector<int64_t>> numbers_of_all(Channel& channel, int64_t mine) {
  std::vector<int64_t> all(static_cast<size_t>(channel.transport().processes()));
  TSR_RETURN_IF_ERROR(channel.gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(all))));
  return all;
}

}  // namespace

Result<int64_t> agree_on_largest(Channel* channel, int64_t mine) {
  if (channel == nullptr) return mine;
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> all, numbers_of_all(*channel, mine));
  return *std::ranges::max_element(all);
}

Result<int64_t> sum_of_all(Channel* channel, int64_t mine) {
  if (channel == nullptr) return mine;
  TSR_ASSIGN_OR_RETURN(const std::vector<int64_t> all, numbers_of_all(*channel, mine));
  return std::accumulate(all.begin(), all.end(), int64_t{0});
}

Status agree_on_values(Channel* channel, const std::map<std::string, std::string>& mine) {
  if (channel == nullptr) return {};
  TSR_ASSIGN_OR_RETURN(const std::string text, channel->broadcast_text(0, dump(Json(mine))));
  TSR_ASSIGN_OR_RETURN(const Json first, parse_json(text, "the first process' values", text.size()));
  const std::string found = difference(first.get<std::map<std::string, std::string>>(), mine);
  return agree(channel, found.empty() ? Status()
                                      : Status(StatusCode::kFailedPrecondition, found + ": start all with the same library, model, data and options"));
}

}  // namespace tessera

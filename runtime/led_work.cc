#include "runtime/led_work.h"

#include <optional>
#include <utility>

#include "runtime/status_message.h"

namespace tessera {

namespace {

// First letters of the first process' messages: the name of a tensor, the text of the work, its error.
constexpr char kRead = 'r', kDone = 'd', kFailed = 'f';

}  // namespace

Result<std::string> LedWork::run(Channel& channel, const Work& work, const Send& send) {
  if (channel.transport().process() == 0) return lead(channel, work);
  while (true) {
    TSR_ASSIGN_OR_RETURN(const std::string message, channel.broadcast_text(0, ""));
    const std::string content = message.empty() ? "" : message.substr(1);
    if (message.starts_with(kDone)) return content;
    if (!message.starts_with(kRead)) return status_of_message(content);
    TSR_RETURN_IF_ERROR(send(content));
  }
}

Result<std::string> LedWork::lead(Channel& channel, const Work& work) {
  std::optional<Result<std::string>> result;
  leading_ = &channel;
  const Status status = catch_status([&] {
    result = work();
    return result->status();
  });
  leading_ = nullptr;
  if (!result) result = status;
  TSR_RETURN_IF_ERROR(channel.broadcast_text(0, result->ok() ? kDone + **result : kFailed + to_message(status)).status());
  return std::move(*result);
}

Status LedWork::announce(std::string_view name) {
  return leading_ != nullptr ? leading_->broadcast_text(0, kRead + std::string(name)).status() : Status();
}

}  // namespace tessera

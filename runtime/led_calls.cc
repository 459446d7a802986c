#include "runtime/led_calls.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <span>
#include <utility>

namespace tessera {

namespace {

// Messages have their size and their first bytes in one block, so that most need one broadcast.
constexpr size_t kBlockBytes = 8192;
using Block = std::array<std::byte, kBlockBytes>;

}  // namespace

Result<std::unique_ptr<LedCalls>> LedCalls::open(std::shared_ptr<Transport> transport) {
  TSR_ASSIGN_OR_RETURN(std::unique_ptr<Channel> channel, Channel::open(std::move(transport)));
  return std::unique_ptr<LedCalls>(new LedCalls(std::move(channel)));
}

void LedCalls::keep(const Call& call) {
  kept_.put(static_cast<int64_t>(call.kind));
  kept_.put(call.entry);
  kept_.put(call.name);
  kept_.put(call.first);
  kept_.put(call.bytes);
  kept_.put(call.value);
}

Result<LedCalls::Call> LedCalls::next(MessageReader& reader) {
  Call call;
  TSR_ASSIGN_OR_RETURN(const int64_t kind, reader.number());
  if (kind < 0 || kind > static_cast<int64_t>(Kind::kEnd))
    return Status(StatusCode::kInternal, "the first process makes a call that this one does not know: start all with the same library");
  call.kind = static_cast<Kind>(kind);
  TSR_ASSIGN_OR_RETURN(call.entry, reader.text());
  TSR_ASSIGN_OR_RETURN(call.name, reader.text());
  TSR_ASSIGN_OR_RETURN(call.first, reader.number());
  TSR_ASSIGN_OR_RETURN(call.bytes, reader.number());
  TSR_ASSIGN_OR_RETURN(call.value, reader.tensor());
  return call;
}

Status LedCalls::tell() {
  std::string text = std::exchange(kept_, {}).text();
  Block block{};
  const auto size = std::ssize(text);
  std::memcpy(block.data(), &size, sizeof size);
  const size_t with_size = std::min(text.size(), block.size() - sizeof size);
  std::memcpy(block.data() + sizeof size, text.data(), with_size);
  TSR_RETURN_IF_ERROR(channel_->broadcast(0, block));
  return with_size < text.size() ? channel_->broadcast(0, std::as_writable_bytes(std::span(text).subspan(with_size))) : Status();
}

Status LedCalls::receive() {
  Block block{};
  TSR_RETURN_IF_ERROR(channel_->broadcast(0, block));
  int64_t size = 0;
  std::memcpy(&size, block.data(), sizeof size);
  if (size < 0) return Status(StatusCode::kInternal, "the first process tells a call of no size");
  received_.resize(static_cast<size_t>(size));
  const size_t with_size = std::min(received_.size(), block.size() - sizeof size);
  std::memcpy(received_.data(), block.data() + sizeof size, with_size);
  return with_size < received_.size() ? channel_->broadcast(0, std::as_writable_bytes(std::span(received_).subspan(with_size))) : Status();
}

}  // namespace tessera

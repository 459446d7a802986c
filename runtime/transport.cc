#include "runtime/transport.h"

#include <utility>

#include "graph/base/text.h"
#include "runtime/host_services.h"

namespace tessera {

namespace {

std::span<std::byte> bytes_of(int64_t& value) { return std::as_writable_bytes(std::span(&value, 1)); }

}  // namespace

Result<std::shared_ptr<Transport>> Transport::open(const tsr_transport_api& api, const tsr_host_api& host,
                                                   const TransportOptions& options) {
  std::shared_ptr<Transport> made(new Transport(api));
  const tsr_transport_options wanted{sizeof wanted, options.comm, options.timeout_s};
  TSR_RETURN_IF_ERROR(take_error(api.open(&host, &wanted, &made->end_)).with_context(format("transport '{}'", api.name)));
  made->info_.struct_size = sizeof made->info_;
  api.describe(made->end_, &made->info_);
  return made;
}

Transport::~Transport() {
  if (end_ != nullptr) api_.close(end_);
}

Result<std::unique_ptr<Channel>> Channel::open(std::shared_ptr<Transport> transport) {
  std::unique_ptr<Channel> made(new Channel(std::move(transport)));
  TSR_RETURN_IF_ERROR(take_error(made->transport_->api_.open_channel(made->transport_->end_, &made->channel_)));
  return made;
}

Channel::~Channel() {
  if (channel_ != nullptr) transport_->api_.close_channel(channel_);
}

Status Channel::broadcast(int32_t root, std::span<std::byte> data) {
  return explained(take_error(transport_->api_.broadcast(channel_, root, data.data(), std::ssize(data))));
}

Status Channel::gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  TSR_CHECK(all.size() == mine.size() * static_cast<size_t>(transport_->processes()), "room for every process");
  return explained(take_error(transport_->api_.gather(channel_, mine.data(), std::ssize(mine), all.data())));
}

Result<std::string> Channel::broadcast_text(int32_t root, std::string text) {
  auto size = std::ssize(text);
  TSR_RETURN_IF_ERROR(broadcast(root, bytes_of(size)));
  text.resize(static_cast<size_t>(size));
  TSR_RETURN_IF_ERROR(broadcast(root, std::as_writable_bytes(std::span(text))));
  return text;
}

void Channel::abort(const Status& why) {
  transport_->api_.abort(channel_, static_cast<int32_t>(why.code()), std::string(why.message()).c_str());
}

Status Channel::explained(const Status& status) const {
  if (status.code() != StatusCode::kAborted) return status;
  const Status why = failure();
  return why.ok() ? status : why;
}

Status Channel::failure() const { return take_error(transport_->api_.failure(channel_)); }

}  // namespace tessera

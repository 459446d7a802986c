// Transport: the world of processes that this one runs with, over a transport's table (transport_abi.h). Channel: the traffic
// of one session, which every process opens in the same order.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "graph/base/result.h"
#include "runtime/transport_abi.h"

namespace tessera {

struct TransportOptions {
  int64_t comm = -1;      // see tsr_transport_options
  double timeout_s = 30;
};

class Transport {
 public:
  // Collective over the world. `host` and the table outlive it.
  static Result<std::shared_ptr<Transport>> open(const tsr_transport_api& api, const tsr_host_api& host,
                                                 const TransportOptions& options);
  ~Transport();
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  int32_t process() const { return info_.process; }
  int32_t processes() const { return info_.processes; }
  int32_t host() const { return info_.host; }
  int32_t hosts() const { return info_.hosts; }
  std::string host_name() const { return info_.host_name; }
  const tsr_transport_api& api() const { return api_; }
  // See tsr_transport_api; from any thread.
  void note_activity() { api_.note_activity(end_); }
  double idle_s() const { return api_.idle_seconds(end_); }

 private:
  friend class Channel;
  explicit Transport(const tsr_transport_api& api) : api_(api) {}

  const tsr_transport_api& api_;
  tsr_transport* end_ = nullptr;
  tsr_transport_info info_{};
};

class Channel {
 public:
  // Collective over the world. Keeps the transport.
  static Result<std::unique_ptr<Channel>> open(std::shared_ptr<Transport> transport);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Transport& transport() const { return *transport_; }

  // Collective over the world; one thread at a time.
  Status broadcast(int32_t root, std::span<std::byte> data);
  Status gather(std::span<const std::byte> mine, std::span<std::byte> all);  // as many bytes of each process, in their order
  Result<std::string> broadcast_text(int32_t root, std::string text);        // of any length; others give anything

  // Ends the waits of all processes; from any thread.
  void abort(const Status& why);
  Status failure() const;  // why it was aborted, or which process was lost; ok: it goes on

  tsr_transport_channel* get() const { return channel_; }

 private:
  // The error of a wait that was ended, with what ended it.
  Status explained(const Status& status) const;
  explicit Channel(std::shared_ptr<Transport> transport) : transport_(std::move(transport)) {}

  std::shared_ptr<Transport> transport_;
  tsr_transport_channel* channel_ = nullptr;
};

}  // namespace tessera

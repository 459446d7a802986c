// LedCalls: calls of a session that the first process makes for all: it tells them, and the others make the same. What only writes gathers, and
// goes out with the next call for which the processes meet. On a channel of its own, which outlives failed runs.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/host_tensor.h"
#include "runtime/message.h"
#include "runtime/transport.h"

namespace tessera {

class LedCalls {
 public:
  enum class Kind : int8_t { kFeed, kWrite, kWriteRows, kZeroState, kRun, kFetch, kRead, kReadRows, kRestore, kEnd };
  struct Call {
    Kind kind = Kind::kEnd;
    std::string_view entry = {}, name = {};  // as the kind has them, like the next three
    int64_t first = 0, bytes = 0;
    HostTensor value = {};
  };

  // Collective over the transport's world.
  static Result<std::unique_ptr<LedCalls>> open(std::shared_ptr<Transport> transport);

  bool is_first() const { return channel_->transport().process() == 0; }
  Channel& channel() { return *channel_; }
  // In the first process: keeps a call, whose values are copied; tells what was kept.
  void keep(const Call& call);
  Status tell();
  // In the others: waits for what the first tells, and passes each call to `make`, until it tells kEnd.
  template <class Make>
  Status follow(const Make& make) {
    while (true) {
      TSR_RETURN_IF_ERROR(receive());
      for (MessageReader reader(received_); !reader.is_at_end();) {
        TSR_ASSIGN_OR_RETURN(const Call call, next(reader));
        if (call.kind == Kind::kEnd) return {};
        make(call);
      }
    }
  }

 private:
  explicit LedCalls(std::unique_ptr<Channel> channel) : channel_(std::move(channel)) {}
  Status receive();
  static Result<Call> next(MessageReader& reader);

  const std::unique_ptr<Channel> channel_;
  MessageWriter kept_;
  std::string received_;
};

}  // namespace tessera

// LedWork: work that the first process of a world does for all, such as writing a file of values that lie everywhere. It asks
// for tensors by name, in any order, and the others send them until the work ends. One thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "runtime/transport.h"

namespace tessera {

class LedWork {
 public:
  using Work = std::function<Result<std::string>()>;
  using Send = std::function<Status(const std::string& name)>;  // takes part in the collective read of a tensor

  // Collective over the channel's world. The first process runs `work`, the others `send`; all get the text of the work, or
  // its error.
  Result<std::string> run(Channel& channel, const Work& work, const Send& send);
  // Called before a tensor is read: within `work` it tells the others; else it does nothing.
  Status announce(std::string_view name);

 private:
  Result<std::string> lead(Channel& channel, const Work& work);

  Channel* leading_ = nullptr;  // while `work` runs
};

}  // namespace tessera

// WeightPool: a model's parameters in the form in which programs keep them, each in memory once however many
// sessions use it: in place in the model's file or memory where type and layout are the same, else a part that
// was cut out, converted or rearranged, held as long as a session uses it. Any thread; one takes at a time.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/session.h"
#include "runtime/shared_weights.h"

namespace tessera {

class SharedModel;

class WeightPool {
 public:
  // Memory of all read-only parameters of the executable's program, at most `at_once` made at a time. Null
  // where the devices have memory of their own. `seed` draws parameters without a value; with another than the
  // model's they are not shared. kChanged where the model's file was written to.
  Result<std::shared_ptr<const SharedWeights>> take(const std::shared_ptr<SharedModel>& model,
                                                    const std::shared_ptr<DeviceSet>& devices,
                                                    const Executable& executable, uint64_t seed,
                                                    size_t at_once);

 private:
  struct Held {
    const std::byte* data = nullptr;
    std::weak_ptr<const void> owner;
    bool is_copy = false;
  };
  class Taking;
  SharedWeight find(const std::string& key);
  void keep(const std::string& key, const SharedWeight& weight);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taking_ = false;
  std::map<std::string, Held> held_;
};

}  // namespace tessera

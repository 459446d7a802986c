// WeightPool: a model's parameters in the programs' storage layout, each in memory once
// for all sessions: in place if type and layout agree, else a part cut out, converted
// or rearranged, kept while a session uses it. Any thread; one takes at a time.
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
  // The read-only parameters of the executable's program, made on at most `at_once` threads.
  // Null if the devices have memory of their own. `seed` draws absent values; only with the
  // model's seed are they shared. kChanged if the model's file was modified.
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

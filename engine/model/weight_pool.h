// WeightPool: a model's parameters in the programs' storage layout, each in memory once
// for all sessions: in place if type and layout agree, else a part cut out, converted
// or rearranged, kept while a session uses it. Thread-safe; concurrent
// take() calls run one after another.
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

// By key of the pool: bytes of the parts of read-only parameters that sessions of one model have in common. Programs with
// equal keys share a part.
std::map<std::string, int64_t> find_weight_parts(const Program& program);

class WeightPool {
 public:
  // The read-only parameters of the executable's program, made on at most `max_threads` threads.
  // Null if the devices have memory of their own. `seed` initializes parameters that the file
  // lacks; these are shared only if it equals the model's seed. kChanged if the model's file was
  // modified.
  Result<std::shared_ptr<const SharedWeights>> take(const std::shared_ptr<SharedModel>& model,
                                                    const std::shared_ptr<DeviceSet>& devices,
                                                    const Executable& executable, uint64_t seed,
                                                    size_t max_threads);

 private:
  struct Held {
    const std::byte* data = nullptr;
    std::weak_ptr<const void> owner;
    bool is_copy = false;
  };
  class TakeLock;
  SharedWeight find(const std::string& key);
  void keep(const std::string& key, const SharedWeight& weight);

  std::mutex mutex_;
  std::condition_variable changed_;
  bool taking_ = false;
  std::map<std::string, Held> held_;
};

}  // namespace tessera

// AdapterRegistry: the adapters that requests may name, on the host. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "engine/serving/adapters/adapter_factors.h"

namespace tessera {

struct LoadedAdapter {
  int64_t number = 0;  // which no other one of the registry ever has
  AdapterFactors factors;
};

class AdapterRegistry {
 public:
  // The adapter's number.
  int64_t add(AdapterFactors factors);
  // It is not found any more; it is freed once the last sequence that holds it has ended. kNotFound.
  Status drop(int64_t adapter);
  // kNotFound where it never was, or was dropped.
  Result<std::shared_ptr<const LoadedAdapter>> find(int64_t adapter) const;

  int64_t size() const;
  int64_t bytes() const;  // of host memory, without dropped ones

 private:
  Status missing(int64_t adapter) const;

  mutable std::mutex mutex_;
  std::map<int64_t, std::shared_ptr<const LoadedAdapter>> adapters_;
  int64_t next_ = 0;
};

}  // namespace tessera

// AdapterRegistry: the adapters that requests may name, in host memory. Any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "engine/serving/adapters/adapter_factors.h"

namespace tessera {

struct LoadedAdapter {
  int64_t number = 0;  // unique in the registry, never reused
  AdapterFactors factors;
};

class AdapterRegistry {
 public:
  // Returns the adapter's number.
  int64_t add(AdapterFactors factors);
  // Removes the adapter from lookup; it is freed with its last sequence. kNotFound.
  Status drop(int64_t adapter);
  // kNotFound for an unknown or dropped adapter.
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

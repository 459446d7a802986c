#include "engine/serving/adapters/adapter_registry.h"

#include <utility>

#include "graph/base/text.h"

namespace tessera {

int64_t AdapterRegistry::add(AdapterFactors factors) {
  const std::lock_guard lock(mutex_);
  adapters_.emplace(next_, std::make_shared<const LoadedAdapter>(LoadedAdapter{next_, std::move(factors)}));
  return next_++;
}

Status AdapterRegistry::missing(int64_t adapter) const {
  return Status(StatusCode::kNotFound, format("there is no adapter {}{}", adapter,
                                              adapter >= 0 && adapter < next_ ? ": it was dropped" : ""));
}

Status AdapterRegistry::drop(int64_t adapter) {
  const std::lock_guard lock(mutex_);
  return adapters_.erase(adapter) > 0 ? Status() : missing(adapter);
}

Result<std::shared_ptr<const LoadedAdapter>> AdapterRegistry::find(int64_t adapter) const {
  const std::lock_guard lock(mutex_);
  const auto found = adapters_.find(adapter);
  if (found == adapters_.end()) return missing(adapter);
  return found->second;
}

int64_t AdapterRegistry::size() const {
  const std::lock_guard lock(mutex_);
  return std::ssize(adapters_);
}

int64_t AdapterRegistry::bytes() const {
  const std::lock_guard lock(mutex_);
  int64_t sum = 0;
  for (const auto& [number, adapter] : adapters_) sum += adapter->factors.bytes();
  return sum;
}

}  // namespace tessera

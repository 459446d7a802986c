// AdapterSlots: the adapters in the slots of a serving program's states.
// Unpinned slots are replaced least recently used first. One thread at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/serving/adapters/adapter_registry.h"
#include "runtime/session.h"

namespace tessera {

class AdapterSlots {
 public:
  explicit AdapterSlots(AdapterLayout layout);
  const AdapterLayout& layout() const { return layout_; }

  // Pins the adapter's slot, first writing it to the session if it has none. Each
  // pin needs one `unpin`. nullopt: all slots are pinned. Call between runs.
  Result<std::optional<int32_t>> pin(const LoadedAdapter& adapter, Session& session);
  void unpin(int32_t slot);
  // Marks all slots empty, after `Session::restore`; none may be pinned.
  void forget() { slots_.assign(slots_.size(), {}); }

  int64_t written() const { return written_; }  // slot writes since the beginning

 private:
  struct Slot {
    std::optional<int64_t> adapter;
    int64_t pins = 0;
    int64_t used = 0;  // larger: more recent
  };
  Slot* find_free();
  Status write(int64_t slot, const AdapterFactors& factors, Session& session) const;

  const AdapterLayout layout_;
  std::vector<Slot> slots_;
  int64_t uses_ = 0, written_ = 0;
};

}  // namespace tessera

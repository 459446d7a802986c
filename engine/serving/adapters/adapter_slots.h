// AdapterSlots: which adapters are in the slots of a serving program's states. Of slots that nothing pins the one that was
// used least recently is written next. One thread at a time.
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

  // The adapter's slot, which it keeps until as many calls of `unpin`; written to the session where it had none. Nothing
  // where all slots are pinned. Between runs.
  Result<std::optional<int32_t>> pin(const LoadedAdapter& adapter, Session& session);
  void unpin(int32_t slot);
  // Slots hold nothing any more: after `Session::restore`, with nothing pinned.
  void forget() { slots_.assign(slots_.size(), {}); }

  int64_t written() const { return written_; }  // slots, since the beginning

 private:
  struct Slot {
    std::optional<int64_t> adapter;
    int64_t pins = 0;
    int64_t used = 0;  // the larger, the later
  };
  Slot* find_free();
  Status write(int64_t slot, const AdapterFactors& factors, Session& session) const;

  const AdapterLayout layout_;
  std::vector<Slot> slots_;
  int64_t uses_ = 0, written_ = 0;
};

}  // namespace tessera

#include "engine/serving/adapters/adapter_slots.h"

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <utility>

#include "graph/transform/row_adapters.h"

namespace tessera {

AdapterSlots::AdapterSlots(AdapterLayout layout)
    : layout_(std::move(layout)), slots_(static_cast<size_t>(layout_.slots)) {}

AdapterSlots::Slot* AdapterSlots::find_free() {
  Slot* best = nullptr;
  for (Slot& slot : slots_)
    if (slot.pins == 0 && (best == nullptr || slot.used < best->used)) best = &slot;
  return best;
}

Result<std::optional<int32_t>> AdapterSlots::pin(const LoadedAdapter& adapter, Session& session) {
  const auto held = std::ranges::find(slots_, std::optional(adapter.number), &Slot::adapter);
  Slot* slot = held == slots_.end() ? find_free() : &*held;
  if (slot == nullptr) return std::optional<int32_t>();
  const auto number = static_cast<int32_t>(slot - slots_.data());
  if (slot->adapter != adapter.number) {
    slot->adapter.reset();
    TSR_RETURN_IF_ERROR(write(number, adapter.factors, session));
    slot->adapter = adapter.number;
    ++written_;
  }
  ++slot->pins;
  slot->used = ++uses_;
  return std::optional(number);
}

void AdapterSlots::unpin(int32_t slot) { --slots_[static_cast<size_t>(slot)].pins; }

// Rows above the adapter's rank and unchanged weights are zero.
Status AdapterSlots::write(int64_t slot, const AdapterFactors& factors, Session& session) const {
  std::vector<std::byte> rows;
  const auto put = [&](const std::string& state, int64_t columns, std::span<const std::byte> given) {
    const TensorType type{layout_.dtype, {1, layout_.rank, columns}};
    rows.assign(static_cast<size_t>(bytes(type)), std::byte{0});
    if (!given.empty()) std::memcpy(rows.data(), given.data(), given.size());
    return session.write_rows(state, slot, HostTensor{type, rows, nullptr});
  };
  for (const auto& [name, weight] : layout_.weights) {
    const auto pair = factors.weights.find(name);
    const bool has = pair != factors.weights.end();
    TSR_RETURN_IF_ERROR(put(name + std::string(kAdapterA), weight.inputs,
                            has ? pair->second.a.data : std::span<const std::byte>()));
    TSR_RETURN_IF_ERROR(put(name + std::string(kAdapterB), weight.outputs,
                            has ? pair->second.b.data : std::span<const std::byte>()));
  }
  return {};
}

}  // namespace tessera

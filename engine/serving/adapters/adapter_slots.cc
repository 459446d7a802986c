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
  std::vector<std::byte> filled;
  const auto put = [&](const std::string& state, int64_t rows, int64_t columns, std::span<const std::byte> given) {
    const TensorType type{layout_.dtype, {1, rows, columns}};
    filled.assign(static_cast<size_t>(bytes(type)), std::byte{0});
    if (!given.empty()) std::memcpy(filled.data(), given.data(), given.size());
    return session.write_rows(state, slot, HostTensor{type, filled, nullptr});
  };
  const auto put_all = [&](const auto& weights, const auto& given, bool are_tables) -> Status {
    for (const auto& [name, weight] : weights) {
      const auto pair = given.find(name);
      const std::span<const std::byte> none, a = pair == given.end() ? none : pair->second.a.data,
                                             b = pair == given.end() ? none : pair->second.b.data;
      TSR_RETURN_IF_ERROR(are_tables ? put(name + std::string(kAdapterTable), weight.inputs, layout_.rank, a)
                                     : put(name + std::string(kAdapterA), layout_.rank, weight.inputs, a));
      TSR_RETURN_IF_ERROR(put(name + std::string(kAdapterB), layout_.rank, weight.outputs, b));
    }
    return {};
  };
  TSR_RETURN_IF_ERROR(put_all(layout_.weights, factors.weights, false));
  return put_all(layout_.tables, factors.tables, true);
}

}  // namespace tessera

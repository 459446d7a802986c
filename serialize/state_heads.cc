#include "serialize/state_heads.h"

#include <cstring>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

// Of a parameter: the rows of one head, or its columns; 0: it has none.
struct HeadExtent {
  int64_t rows = 0, columns = 0;
};

HeadExtent extent_of(std::string_view parameter, int64_t V) {
  if (!parameter.starts_with("block.")) return {};
  if (parameter.ends_with(".bias")) parameter.remove_suffix(5);
  const std::string_view leaf = parameter.substr(parameter.rfind('.') + 1);
  for (const std::string_view each : {"scan_v", "scan_z", "conv_v"})
    if (leaf == each) return {.rows = V};
  for (const std::string_view each : {"scan_beta", "scan_step", "log_rate", "step_bias", "skip"})
    if (leaf == each) return {.rows = 1};
  return leaf == "scan_out" ? HeadExtent{.columns = V} : HeadExtent();
}

// The present place of the head at `place` of the wanted order.
int64_t source_of(int64_t place, const StateHeads& heads) {
  const int64_t each = heads.H / heads.G;  // heads of values of a head of keys
  return heads.wanted_turned ? place % heads.G * each + place / heads.G : place % each * heads.G + place / each;
}

}  // namespace

StateHeads state_heads(const RecurrentSizes& sizes, bool wanted_turned) {
  if (sizes.kind != Recurrent::kDelta && sizes.kind != Recurrent::kStateSpace) return {};
  return {sizes.H, sizes.G, sizes.V, sizes.turned, sizes.kind == Recurrent::kDelta && wanted_turned};
}

Result<TensorSource> with_heads_in_order(TensorSource parameter, const StateHeads& heads) {
  if (heads.turned == heads.wanted_turned || heads.H == heads.G || heads.G == 1) return parameter;
  const HeadExtent extent = extent_of(parameter.name, heads.V);
  if (extent.rows == 0 && extent.columns == 0) return parameter;
  const TensorType type = parameter.type;
  if (extent.columns % info(type.dtype).block_elements != 0)
    return Status(StatusCode::kUnsupported,
                  format("'{}' is stored as {}, blocks of {} numbers, and its heads of {} go into another order: wanted another "
                         "type",
                         parameter.name, to_text(type.dtype), info(type.dtype).block_elements, heads.V));
  const int64_t groups = extent.rows > 0 ? 1 : type.shape[0];  // of all heads
  const auto whole = static_cast<size_t>(bytes(type) / groups), head = whole / static_cast<size_t>(heads.H);
  TensorSource out{parameter.name, type, {}, bytes(type), {}, {}};
  const auto from = std::make_shared<const TensorSource>(std::move(parameter));
  out.read = [from, heads, groups, whole, head](int64_t, std::span<std::byte> buffer) -> Result<std::span<const std::byte>> {
    TSR_ASSIGN_OR_RETURN(const HostTensor stored, read_whole(*from));
    for (int64_t group = 0; group < groups; ++group)
      for (int64_t place = 0; place < heads.H; ++place)
        std::memcpy(buffer.data() + static_cast<size_t>(group) * whole + static_cast<size_t>(place) * head,
                    stored.data.data() + static_cast<size_t>(group) * whole + static_cast<size_t>(source_of(place, heads)) * head, head);
    return std::span<const std::byte>(buffer);
  };
  return out;
}

}  // namespace tessera

#include "engine/serving/adapters/base_values.h"

#include <algorithm>
#include <optional>
#include <span>

#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {

namespace {

constexpr size_t kPart = size_t{64} << 10;

// The number at a byte of a value; of blocks, where they are stored, the byte.
std::string number_at(const HostTensor& value, size_t byte) {
  const DType dtype = value.type.dtype;
  if (info(dtype).block_elements > 1) return format("{} as byte {}", static_cast<int>(value.data[byte]), byte);
  const auto size = static_cast<size_t>(bytes(TensorType{dtype, {1}}));
  const HostTensor one{{dtype, {1}}, value.data.subspan(byte / size * size, size), nullptr};
  const Result<HostTensor> wide = widen_weight(one);
  if (!wide.ok() || wide->type.dtype != DType::kF32) return format("another number at byte {}", byte);
  return format("{} as number {}", wide->as<float>()[0], byte / size);
}

Status check_part(const HostTensor& found, const HostTensor& wanted, const std::string& name, size_t begin, size_t size) {
  const auto mine = wanted.data.subspan(begin, size), theirs = found.data.subspan(begin, size);
  const auto at = std::ranges::mismatch(theirs, mine).in1;
  if (at == theirs.end()) return {};
  const size_t byte = begin + static_cast<size_t>(at - theirs.begin());
  return Status(StatusCode::kInvalidArgument,
                format("adapter: its base has other values: '{}' has {} there, {} in the served model: serve the model "
                       "that the adapter was added to",
                       name, number_at(found, byte), number_at(wanted, byte)));
}

Status check_same(const HostTensor& found, const HostTensor& wanted, const std::string& name, bool whole) {
  if (found.type != wanted.type || found.data.data() == wanted.data.data()) return {};
  const size_t size = wanted.data.size();
  if (whole || size <= 3 * kPart) return check_part(found, wanted, name, 0, size);
  for (const size_t begin : {size_t{0}, (size - kPart) / 2, size - kPart})
    TSR_RETURN_IF_ERROR(check_part(found, wanted, name, begin, kPart));
  return {};
}

}  // namespace

Status check_base_value(const SharedModel& adapted, uint64_t seed, const SharedModel& base, const std::string& name) {
  TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> found, adapted.find(name));
  TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> wanted, base.find(name));
  if (found && wanted) return check_same(found->tensor, wanted->tensor, name, false);
  if (!found && !wanted && seed == base.seed()) return {};
  TSR_ASSIGN_OR_RETURN(const HostTensor value, adapted.read_uncached(name, seed));
  return check_base_value(value, base, name);
}

Status check_base_value(const HostTensor& value, const SharedModel& base, const std::string& name) {
  TSR_ASSIGN_OR_RETURN(const HostTensor wanted, base.read_uncached(name, base.seed()));
  return check_same(value, wanted, name, true);
}

}  // namespace tessera

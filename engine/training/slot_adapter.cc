#include "engine/training/slot_adapter.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "engine/model/adapters.h"
#include "graph/base/text.h"
#include "graph/transform/row_adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_values.h"

namespace tessera {

namespace {

Status refuse(std::string message) { return Status(StatusCode::kInvalidArgument, "adapter: " + std::move(message)); }

Status unsupported(std::string message) {
  return Status(StatusCode::kUnsupported,
                "adapter: " + std::move(message) + " is not computed in slots: train it alone (tsr_trainer_new)");
}

Status check_form(const Adapter& adapter, const TrainerSettings& slots) {
  if (adapter.is_table) return unsupported(format("'{}', of a table,", adapter.a));
  if (!adapter.magnitude.empty()) return unsupported(format("the magnitudes (DoRA) '{}'", adapter.magnitude));
  if (!adapter.bias.empty()) return unsupported(format("the bias '{}'", adapter.bias));
  if (!adapter.a0.empty()) return unsupported(format("the start (PiSSA) '{}'", adapter.a0));
  if (adapter.dropout > 0 && !slots.adapter_dropout)
    return refuse(format("its dropout is {}, slots have no room for dropout: wanted the trainer's option adapter_dropout 1",
                         adapter.dropout));
  if (std::ranges::find(slots.adapter_weights, adapter.weight) == slots.adapter_weights.end())
    return refuse(format("'{}' has no slots: name it in the trainer's option adapter_weights", adapter.weight));
  if (adapter.rank > slots.adapter_rank)
    return refuse(format("its rank for '{}' is {}, slots have room for {}: raise the trainer's option adapter_rank",
                         adapter.weight, adapter.rank, slots.adapter_rank));
  return {};
}

HostTensor zeros(const TensorType& type) { return HostTensor::zeros(type, nullptr); }

}  // namespace

Result<SlotAdapter> SlotAdapter::create(std::shared_ptr<SharedModel> adapted, const TrainerSettings& slots) {
  SlotAdapter made;
  made.adapted_ = std::move(adapted);
  made.capacity_ = slots.adapter_rank;
  made.seed_ = made.adapted_->seed();
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(made.adapted_->graph()));
  const std::vector<Adapter> all = find_adapters(logical.graph);
  if (all.empty()) return refuse("there are no low-rank adapters in it, wanted at least one");
  for (const TensorId id : logical.graph.tensors_of_kind(TensorKind::kParameter))
    if (logical.graph.tensor(id).trainable && !is_adapter_name(logical.graph.tensor(id).name))
      return unsupported(format("'{}', which trains in full,", logical.graph.tensor(id).name));
  made.factor_ = all.front().factor;
  made.dropout_ = all.front().dropout;
  for (const Adapter& it : all) {
    TSR_RETURN_IF_ERROR(check_form(it, slots));
    if (it.factor != made.factor_)
      return unsupported(format("a factor of {} for '{}' and of {} for '{}'", it.factor, it.weight, made.factor_,
                                all.front().weight));
    if (it.dropout != made.dropout_)
      return unsupported(format("dropout {} for '{}' and {} for '{}'", it.dropout, it.weight, made.dropout_, all.front().weight));
    for (const bool is_a : {true, false}) {
      const std::string& name = is_a ? it.a : it.b;
      if (made.matrices_.contains(name)) return unsupported(format("'{}', which several weights share,", name));
      const TensorType& type = logical.graph.type(*logical.graph.find_tensor(name));
      const bool transposes = is_a ? !it.transposed : it.transposed;
      made.matrices_[name] = {it.weight + std::string(is_a ? kAdapterA : kAdapterB), type, it.rank,
                              type.shape[transposes ? 0 : 1], transposes};
    }
  }
  return made;
}

int64_t SlotAdapter::rank() const {
  int64_t most = 0;
  for (const auto& [name, matrix] : matrices_) most = std::max(most, matrix.rank);
  return most;
}

Result<SlotAdapter::Place> SlotAdapter::place_of(const std::string& name) const {
  if (const auto found = matrices_.find(name); found != matrices_.end()) return Place{&found->second, found->second.state};
  const size_t dot = name.rfind('.');
  const auto found = dot == name.npos ? matrices_.end() : matrices_.find(name.substr(0, dot));
  if (found == matrices_.end()) return Status(StatusCode::kNotFound, format("the adapter has no value '{}'", name));
  return Place{&found->second, found->second.state + name.substr(dot)};
}

Status SlotAdapter::write_first(Session& session, int32_t slot,
                                const std::vector<std::pair<std::string, TensorType>>& states) const {
  for (const auto& [state, type] : states) {
    const Shape& shape = type.shape;
    TSR_RETURN_IF_ERROR(session.write_rows(state, slot, zeros({type.dtype, {1, shape[1], shape[2]}})));
  }
  for (const auto& [name, matrix] : matrices_) {
    TSR_ASSIGN_OR_RETURN(HostTensor value, adapted_->read_uncached(name, seed_));
    TSR_ASSIGN_OR_RETURN(value, widen_weight(value));
    TSR_RETURN_IF_ERROR(write(session, slot, name, value));
  }
  return {};
}

Result<HostTensor> SlotAdapter::read(Session& session, int32_t slot, const std::string& name) const {
  TSR_ASSIGN_OR_RETURN(const Place place, place_of(name));
  const auto [rank, columns] = std::pair(place.matrix->rank, place.matrix->columns);
  std::vector<float> rows(static_cast<size_t>(capacity_ * columns));
  TSR_RETURN_IF_ERROR(session.read_rows_into(place.state, slot, std::as_writable_bytes(std::span(rows))));
  rows.resize(static_cast<size_t>(rank * columns));
  HostTensor value = f32_matrix(rank, columns, rows);
  return place.matrix->transposes ? transposed_matrix(value) : value;
}

Status SlotAdapter::write(Session& session, int32_t slot, const std::string& name, const HostTensor& value) const {
  TSR_ASSIGN_OR_RETURN(const Place place, place_of(name));
  if (value.type != place.matrix->type)
    return refuse(format("'{}' is {}, wanted {}", name, to_text(value.type), to_text(place.matrix->type)));
  const HostTensor own = place.matrix->transposes ? transposed_matrix(value) : value;
  std::vector<float> rows(own.as<float>().begin(), own.as<float>().end());
  rows.resize(static_cast<size_t>(capacity_ * place.matrix->columns));
  const TensorType type{DType::kF32, {1, capacity_, place.matrix->columns}};
  return session.write_rows(place.state, slot, HostTensor::copy_of<float>(type, rows));
}

std::vector<std::pair<std::string, TensorType>> SlotAdapter::values(
    const std::vector<std::pair<std::string, TensorType>>& states) const {
  std::vector<std::pair<std::string, TensorType>> found;
  for (const auto& [name, matrix] : matrices_)
    for (const auto& [state, type] : states) {
      if (!state.starts_with(matrix.state)) continue;
      const std::string rest = state.substr(matrix.state.size());
      if (rest.empty() || rest.front() == '.') found.emplace_back(name + rest, matrix.type);
    }
  return found;
}

Result<std::shared_ptr<SharedModel>> SlotAdapter::model_with_values(Session& session, int32_t slot) const {
  std::map<std::string, HostTensor, std::less<>> values;
  for (const auto& [name, matrix] : matrices_) {
    TSR_ASSIGN_OR_RETURN(values[name], read(session, slot, name));
  }
  return with_parameter_values(*adapted_, values);
}

}  // namespace tessera

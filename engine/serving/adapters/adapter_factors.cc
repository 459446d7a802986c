#include "engine/serving/adapters/adapter_factors.h"

#include <cstring>
#include <optional>
#include <string_view>

#include "engine/model/adapters.h"
#include "engine/serving/adapters/base_values.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/row_adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/adapters/adapter_values.h"

namespace tessera {

namespace {

Status refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapter: " + std::move(message));
}

Status unsupported(std::string message) {
  return Status(StatusCode::kUnsupported,
                "adapter: " + std::move(message) +
                    " cannot be applied to single requests: merge the adapter and serve that model");
}

Status check_same_base(const Graph& adapted, const Graph& base) {
  for (const TensorId id : base.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& wanted = base.tensor(id);
    const std::optional<TensorId> found = adapted.find_tensor(wanted.name);
    if (!found)
      return refuse(format("it is of another model: '{}' {}, which the served model has, is not there",
                           wanted.name, to_text(wanted.type)));
    if (adapted.type(*found).shape != wanted.type.shape)
      return refuse(format("it is of another model: '{}' is {} there, the served model has {}", wanted.name,
                           to_text(adapted.type(*found)), to_text(wanted.type)));
  }
  return {};
}

// `head`: the weight of the served model's head, as adapters name it.
Status check_servable(const Adapter& adapter, const AdapterLayout& layout, std::string_view head) {
  if (adapter.is_table)
    return unsupported(format("'{}' and '{}', of the table '{}',", adapter.a, adapter.b, adapter.weight));
  if (!adapter.magnitude.empty()) return unsupported(format("the magnitudes (DoRA) '{}'", adapter.magnitude));
  if (!adapter.bias.empty()) return unsupported(format("the bias '{}'", adapter.bias));
  if (!adapter.a0.empty())
    return Status(
        StatusCode::kUnsupported,
        format("adapter: '{}' was taken out of the base (PiSSA): load it onto the model and export that "
               "with format peft, which makes it an ordinary adapter of twice the rank",
               adapter.a0));
  if (!layout.weights.contains(adapter.weight) && adapter.weight == head)
    return Status(StatusCode::kUnsupported,
                  format("adapter: '{}' and '{}' are of the head, and slots have room for weights of the blocks: set "
                         "adapter_on to blocks,head, or merge the adapter and serve that model",
                         adapter.a, adapter.b));
  if (!layout.weights.contains(adapter.weight))
    return unsupported(format("'{}' and '{}', of a weight outside of the blocks,", adapter.a, adapter.b));
  if (adapter.rank > layout.rank)
    return refuse(format("its rank for '{}' is {}, slots have room for {}: raise adapter_rank",
                         adapter.weight, adapter.rank, layout.rank));
  return {};
}

// Rows of the rank, times `factor`, in the layout's type.
Result<HostTensor> rank_rows(const ReadParameter& read, const std::string& name, bool transposes,
                             double factor, DType dtype) {
  TSR_ASSIGN_OR_RETURN(HostTensor value, read(name));
  TSR_ASSIGN_OR_RETURN(value, widen_weight(value));
  if (transposes) value = transposed_matrix(value);
  if (factor != 1) {
    std::vector<float> scaled;
    for (const float number : value.as<float>())
      scaled.push_back(static_cast<float>(factor * static_cast<double>(number)));
    value = HostTensor::copy_of<float>(value.type, scaled);
  }
  if (dtype == DType::kF32) return value;
  Result<HostTensor> rounded = quantize_weight(value, {dtype, value.type.shape});
  return rounded.ok() ? std::move(rounded) : Result<HostTensor>(rounded.status().with_context(name));
}

}  // namespace

AdapterLayout AdapterLayout::of(const std::vector<std::pair<std::string, TensorType>>& states) {
  AdapterLayout layout;
  for (const auto& [name, type] : states) {
    const bool is_a = name.ends_with(kAdapterA), is_b = name.ends_with(kAdapterB);
    if (!is_a && !is_b) continue;
    Weight& weight = layout.weights[name.substr(0, name.size() - (is_a ? kAdapterA : kAdapterB).size())];
    (is_a ? weight.inputs : weight.outputs) = type.shape[2];
    layout.slots = type.shape[0];
    layout.rank = type.shape[1];
    layout.dtype = type.dtype;
  }
  return layout;
}

int64_t AdapterFactors::bytes() const {
  int64_t sum = 0;
  for (const auto& [name, pair] : weights)
    sum += static_cast<int64_t>(pair.a.data.size() + pair.b.data.size());
  return sum;
}

Result<AdapterFactors> read_adapter(const Graph& adapted, const ReadParameter& read, const SharedModel& base,
                                    const AdapterLayout& layout) {
  TSR_ASSIGN_OR_RETURN(const LogicalGraph logical, with_logical_weights(adapted));
  const Graph served = base.graph();
  TSR_RETURN_IF_ERROR(check_same_base(logical.graph, served));
  const std::string head = adapted_head(served);
  const std::vector<Adapter> all = find_adapters(logical.graph);
  if (all.empty()) return refuse("there are no low-rank adapters in it, wanted at least one");
  for (const TensorId id : logical.graph.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = logical.graph.tensor(id);
    if (tensor.trainable && !is_adapter_name(tensor.name))
      return unsupported(format("'{}', which trains in full,", tensor.name));
  }
  AdapterFactors factors;
  for (const Adapter& it : all) {
    TSR_RETURN_IF_ERROR(check_servable(it, layout, head));
    AdapterFactors::Pair pair;
    TSR_ASSIGN_OR_RETURN(pair.a, rank_rows(read, it.a, !it.transposed, 1, layout.dtype));
    TSR_ASSIGN_OR_RETURN(pair.b, rank_rows(read, it.b, it.transposed, it.factor, layout.dtype));
    const AdapterLayout::Weight& weight = layout.weights.find(it.weight)->second;
    if (pair.a.type.shape != Shape{it.rank, weight.inputs} ||
        pair.b.type.shape != Shape{it.rank, weight.outputs})
      return refuse(format("'{}' is {} and '{}' {}, wanted {} and {} numbers in each of {} rows", it.a,
                           to_text(pair.a.type), it.b, to_text(pair.b.type), weight.inputs, weight.outputs,
                           it.rank));
    factors.weights.emplace(it.weight, std::move(pair));
  }
  return factors;
}

Result<AdapterFactors> read_adapter(const SharedModel& adapted, const SharedModel& base,
                                    const AdapterLayout& layout) {
  const auto read = [&](const std::string& name) { return adapted.read_uncached(name, adapted.seed()); };
  TSR_ASSIGN_OR_RETURN(AdapterFactors factors, read_adapter(adapted.graph(), read, base, layout));
  for (const std::string& name : base.parameter_names())
    TSR_RETURN_IF_ERROR(check_base_value(adapted, adapted.seed(), base, name));
  return factors;
}

Result<AdapterFactors> read_adapter(WeightOwner& trainer, const SharedModel& base, const AdapterLayout& layout) {
  TSR_RETURN_IF_ERROR(trainer.usable());
  TSR_RETURN_IF_ERROR(trainer.check_values());
  const SharedModel& adapted = *trainer.model();
  const std::vector<std::string> names = base.parameter_names();
  const auto read = [&](const std::string& name) { return trainer.present_value(name); };
  TSR_ASSIGN_OR_RETURN(AdapterFactors factors, read_adapter(adapted.graph(), read, base, layout));
  for (const std::string& name : names) {
    if (!trainer.is_frozen(name)) return unsupported(format("'{}', which trains in full,", name));
    if (!trainer.is_replaced(name)) {
      TSR_RETURN_IF_ERROR(check_base_value(adapted, trainer.parameter_seed(), base, name));
      continue;
    }
    TSR_ASSIGN_OR_RETURN(const HostTensor value, trainer.present_value(name));
    TSR_RETURN_IF_ERROR(check_base_value(value, base, name));
  }
  return factors;
}

Result<AdapterFactors> read_adapter_file(const std::string& path, const SharedModel& base,
                                         const AdapterLayout& layout) {
  TSR_ASSIGN_OR_RETURN(const std::shared_ptr<SharedModel> adapted, load_adapters(base, path, {}));
  Result<AdapterFactors> factors = read_adapter(*adapted, base, layout);
  return factors.ok() ? std::move(factors) : Result<AdapterFactors>(factors.status().with_context(path));
}

}  // namespace tessera

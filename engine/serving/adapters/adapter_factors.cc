#include "engine/serving/adapters/adapter_factors.h"

#include <cstring>
#include <optional>
#include <span>
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
  if (adapter.is_table && layout.tables.empty())
    return Status(StatusCode::kUnsupported,
                  format("adapter: '{}' and '{}' are of the table '{}', and slots have room for products' weights: set "
                         "adapter_on to blocks,tables (with the head: blocks,head,tables), or merge the adapter and serve that model",
                         adapter.a, adapter.b, adapter.weight));
  if (!adapter.magnitude.empty()) return unsupported(format("the magnitudes (DoRA) '{}'", adapter.magnitude));
  if (!adapter.bias.empty()) return unsupported(format("the bias '{}'", adapter.bias));
  if (!adapter.a0.empty())
    return Status(
        StatusCode::kUnsupported,
        format("adapter: '{}' was taken out of the base (PiSSA): load it onto the model and export that "
               "with format peft, which makes it an ordinary adapter of twice the rank",
               adapter.a0));
  const bool has_room = (adapter.is_table ? layout.tables : layout.weights).contains(adapter.weight);
  if (!has_room && !adapter.is_table && adapter.weight == head)
    return Status(StatusCode::kUnsupported,
                  format("adapter: '{}' and '{}' are of the head, and slots have room for other weights: set "
                         "adapter_on to blocks,head (with tables: blocks,head,tables), or merge the adapter and serve that model",
                         adapter.a, adapter.b));
  if (!has_room) return unsupported(format("'{}' and '{}', of a weight outside of the blocks,", adapter.a, adapter.b));
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

// Rows [V, r] of a table, with zeros up to [V, rank].
HostTensor padded_rows(const HostTensor& rows, int64_t rank) {
  const Shape& shape = rows.type.shape;
  if (shape[1] == rank) return rows;
  std::span<std::byte> all;
  HostTensor padded = HostTensor::zeros({rows.type.dtype, {shape[0], rank}}, &all);
  const auto from = static_cast<size_t>(bytes(TensorType{rows.type.dtype, {shape[1]}})),
             to = static_cast<size_t>(bytes(TensorType{rows.type.dtype, {rank}}));
  for (int64_t v = 0; v < shape[0]; ++v)
    std::memcpy(all.data() + static_cast<size_t>(v) * to, rows.data.data() + static_cast<size_t>(v) * from, from);
  return padded;
}

// The factors of an adapter that check_servable accepts.
Result<AdapterFactors::Pair> read_pair(const ReadParameter& read, const Adapter& it, const AdapterLayout& layout) {
  AdapterFactors::Pair pair;
  const bool keeps_rows = it.is_table || it.transposed;
  TSR_ASSIGN_OR_RETURN(pair.a, rank_rows(read, it.a, !keeps_rows, 1, layout.dtype));
  TSR_ASSIGN_OR_RETURN(pair.b, rank_rows(read, it.b, keeps_rows, it.factor, layout.dtype));
  const AdapterLayout::Weight& weight = (it.is_table ? layout.tables : layout.weights).find(it.weight)->second;
  const Shape a = it.is_table ? Shape{weight.inputs, it.rank} : Shape{it.rank, weight.inputs}, b = {it.rank, weight.outputs};
  if (pair.a.type.shape != a || pair.b.type.shape != b)
    return refuse(format("'{}' is {} and '{}' {}, wanted {} and {}", it.a, to_text(pair.a.type), it.b, to_text(pair.b.type),
                         to_text(TensorType{layout.dtype, a}), to_text(TensorType{layout.dtype, b})));
  if (it.is_table) pair.a = padded_rows(pair.a, layout.rank);
  return pair;
}

}  // namespace

AdapterLayout AdapterLayout::of(const std::vector<std::pair<std::string, TensorType>>& states) {
  AdapterLayout layout;
  const auto weight_of = [](const std::string& state, std::string_view suffix) {
    return state.substr(0, state.size() - suffix.size());
  };
  for (const auto& [name, type] : states) {
    const bool is_rows = name.ends_with(kAdapterTable);
    if (!is_rows && !name.ends_with(kAdapterA)) continue;
    if (is_rows)
      layout.tables[weight_of(name, kAdapterTable)].inputs = type.shape[1];
    else
      layout.weights[weight_of(name, kAdapterA)].inputs = type.shape[2];
    layout.slots = type.shape[0];
    layout.rank = type.shape[is_rows ? 2 : 1];
    layout.dtype = type.dtype;
  }
  for (const auto& [name, type] : states) {
    if (!name.ends_with(kAdapterB)) continue;
    const std::string weight = weight_of(name, kAdapterB);
    const auto table = layout.tables.find(weight);
    (table == layout.tables.end() ? layout.weights[weight] : table->second).outputs = type.shape[2];
  }
  return layout;
}

int64_t AdapterFactors::bytes() const {
  int64_t sum = 0;
  for (const auto* all : {&weights, &tables})
    for (const auto& [name, pair] : *all) sum += static_cast<int64_t>(pair.a.data.size() + pair.b.data.size());
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
    TSR_ASSIGN_OR_RETURN(AdapterFactors::Pair pair, read_pair(read, it, layout));
    (it.is_table ? factors.tables : factors.weights).emplace(it.weight, std::move(pair));
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

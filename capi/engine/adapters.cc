#include "capi/engine/adapters.h"

#include <algorithm>

#include "capi/engine/rewrite.h"
#include "graph/base/text.h"
#include "graph/transform/adapters.h"
#include "graph/transform/weight_storage.h"
#include "serialize/file_limits.h"

namespace tessera {
namespace {

std::shared_ptr<SharedModel> shared_from(Model model, const SharedModel& like) {
  auto made = std::make_shared<SharedModel>(std::move(model), like.seed());
  made->set_tokenizer(like.tokenizer());
  return made;
}

// Adds in double, one row at a time; W has rows as it is stored.
template <class T>
HostTensor merged(const HostTensor& weight, const HostTensor& a, const HostTensor& b, const Adapter& it) {
  // W [R, S] += factor * left [R, r] right [r, S].
  const HostTensor& left = it.transposed ? b : a;
  const HostTensor& right = it.transposed ? a : b;
  const auto rows = static_cast<size_t>(weight.type.shape[0]);
  const auto columns = static_cast<size_t>(weight.type.shape[1]);
  const auto rank = static_cast<size_t>(left.type.shape[1]);
  const auto w = weight.as<T>(), l = left.as<T>(), r = right.as<T>();
  std::vector<T> values(w.begin(), w.end());
  std::vector<double> row(columns);
  for (size_t i = 0; i < rows; ++i) {
    std::fill(row.begin(), row.end(), 0.0);
    for (size_t k = 0; k < rank; ++k)
      for (size_t j = 0; j < columns; ++j)
        row[j] += static_cast<double>(l[i * rank + k]) * static_cast<double>(r[k * columns + j]);
    for (size_t j = 0; j < columns; ++j) {
      T& value = values[i * columns + j];
      value = static_cast<T>(static_cast<double>(value) + it.factor * row[j]);
    }
  }
  return HostTensor::copy_of<T>(weight.type, values);
}

}  // namespace

Result<std::shared_ptr<SharedModel>> add_adapters(const SharedModel& model, const Options& options) {
  OptionReader reader(options, "adapters");
  AdapterOptions adapters;
  adapters.rank = reader.i64("rank", 16, 1, int64_t{1} << 20);
  adapters.alpha = reader.f64("alpha", 0, 0, 1e9);
  const std::string on = reader.text("on");
  TSR_RETURN_IF_ERROR(reader.finish());
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(const LogicalGraph base, with_logical_weights(made.graph));
  std::vector<TensorId> weights = adaptable_weights(base.graph);
  if (!trim(on).empty()) {
    TSR_ASSIGN_OR_RETURN(weights, matching_parameters(base.graph, on, weights, "adapters"));
  }
  TSR_ASSIGN_OR_RETURN(const Graph adapted, with_adapters(base.graph, weights, adapters));
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(adapted, {.types = base.stored}));
  TSR_RETURN_IF_ERROR(check_storable(made));
  return shared_from(std::move(made), model);
}

std::optional<AdapterSummary> adapter_summary(const Graph& graph) {
  const Result<LogicalGraph> logical = with_logical_weights(graph);
  if (!logical.ok()) return std::nullopt;  // of a graph with gradients
  const std::vector<Adapter> all = find_adapters(logical->graph);
  if (all.empty()) return std::nullopt;
  const Shape& a = graph.type(*graph.find_tensor(all[0].a)).shape;
  AdapterSummary summary;
  summary.rank = a[all[0].transposed ? 0 : 1];
  summary.alpha = all[0].factor * static_cast<double>(summary.rank);
  for (const Adapter& it : all) summary.on += (summary.on.empty() ? "" : ",") + it.weight;
  return summary;
}

Result<std::shared_ptr<SharedModel>> merge_adapters(const SharedModel& model) {
  Model made = model.snapshot();
  TSR_ASSIGN_OR_RETURN(LogicalGraph logical, with_logical_weights(made.graph));
  const std::vector<Adapter> all = find_adapters(logical.graph);
  if (all.empty())
    return Status(StatusCode::kFailedPrecondition, "merge: the model has no adapters to take in");
  for (const Adapter& it : all) {
    TSR_ASSIGN_OR_RETURN(HostTensor weight, model.read_uncached(it.weight, model.seed()));
    // A sum that was rounded to few bits again would lose the adapter: it stays f32.
    if (logical.stored.erase(it.weight) > 0) {
      TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
    }
    TSR_ASSIGN_OR_RETURN(const HostTensor a, model.read_uncached(it.a, model.seed()));
    TSR_ASSIGN_OR_RETURN(const HostTensor b, model.read_uncached(it.b, model.seed()));
    const DType dtype = weight.type.dtype;
    if (dtype != DType::kF32 && dtype != DType::kF64)
      return Status(StatusCode::kUnsupported,
                    format("merge: '{}' is {}, wanted f32 or f64", it.weight, to_text(weight.type)));
    made.parameters.insert_or_assign(
        it.weight, dtype == DType::kF32 ? merged<float>(weight, a, b, it) : merged<double>(weight, a, b, it));
  }
  for (const Adapter& it : all) made.parameters.erase(it.a), made.parameters.erase(it.b);
  TSR_ASSIGN_OR_RETURN(const Graph plain, without_adapters(logical.graph));
  TSR_ASSIGN_OR_RETURN(made.graph, with_stored_weights(plain, {.types = logical.stored}));
  return shared_from(std::move(made), model);
}

}  // namespace tessera

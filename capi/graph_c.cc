// tsr_graph: the builder, its text form, and the transforms.
#include "capi/guard.h"
#include "capi/handles.h"
#include "engine/program/report.h"
#include "engine/settings/trainer_settings.h"
#include "graph/base/nearest_hint.h"
#include "graph/base/text.h"
#include "graph/transform/embedding.h"
#include "graph/transform/sampling.h"
#include "graph/transform/serving.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

Result<TensorId> value_of(const Graph& graph, tsr_value value) {
  if (value < graph.tensors().size()) return static_cast<TensorId>(value);
  return Status(StatusCode::kInvalidArgument,
                format("value {} is not of this graph, which has {}", value, graph.tensors().size()));
}

// Converts integers to reals where the op wants reals; add_node checks everything else.
std::vector<Attr> attributes_for(std::string_view op, const tsr_options* options) {
  std::vector<Attr> attrs;
  if (!options) return attrs;
  const OpDef* def = find_op(op);
  for (const auto& [key, value] : options->value) {
    attrs.push_back({key, value});
    if (!def) continue;
    for (const AttrSpec& spec : def->attrs)
      if (spec.name == key && spec.type == AttrType::kF64)
        if (const int64_t* integer = std::get_if<int64_t>(&value))
          attrs.back().value = static_cast<double>(*integer);
  }
  return attrs;
}

tsr_status* add_leaf(tsr_graph* graph, const char* name, tsr_dtype dtype, int32_t rank, const int64_t* dims,
                     TensorKind kind, tsr_value* out_value) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {name, "name"}, {out_value, "out_value"}}));
    TSR_ASSIGN_OR_RETURN(const TensorType type, tensor_type(dtype, rank, dims, kind == TensorKind::kInput));
    for (const int64_t extent : type.shape.dims())
      if (is_symbol(extent) && static_cast<size_t>(symbol_index(extent)) >= graph->value.symbols().size())
        return Status(
            StatusCode::kInvalidArgument,
            format("'{}': extent {} is neither a count nor what tsr_graph_symbol returned", name, extent));
    TSR_ASSIGN_OR_RETURN(const TensorId id, graph->value.add_tensor(name, type, kind));
    *out_value = static_cast<tsr_value>(index(id));
    return {};
  });
}

// `make` returns Result<Graph>.
template <class Make>
tsr_status* derive(const tsr_graph* graph, tsr_graph** out_graph, Make&& make) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {out_graph, "out_graph"}}));
    TSR_ASSIGN_OR_RETURN(Graph made, make());
    *out_graph = new tsr_graph{std::move(made)};
    return {};
  });
}

}  // namespace

tsr_status* tsr_graph_new(tsr_graph** out_graph) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_graph, "out_graph"}}));
    *out_graph = new tsr_graph;
    return {};
  });
}

tsr_status* tsr_graph_parse(const char* text, size_t size, tsr_graph** out_graph) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {out_graph, "out_graph"}}));
    TSR_ASSIGN_OR_RETURN(Graph graph, parse_graph(text_of(text, size)));
    *out_graph = new tsr_graph{std::move(graph)};
    return {};
  });
}

tsr_status* tsr_graph_print(const tsr_graph* graph, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {out_text, "out_text"}}));
    return give_text(print(graph->value), out_text);
  });
}

tsr_status* tsr_graph_symbol(tsr_graph* graph, const char* name, int64_t capacity, int64_t* out_extent) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {name, "name"}, {out_extent, "out_extent"}}));
    if (*name == '\0' || capacity < 0)
      return Status(
          StatusCode::kInvalidArgument,
          format("symbol '{}' with capacity {}: wanted a name and a capacity of at least 0", name, capacity));
    *out_extent = graph->value.symbol(name, capacity);
    return {};
  });
}

tsr_status* tsr_graph_input(tsr_graph* graph, const char* name, tsr_dtype dtype, int32_t rank,
                            const int64_t* dims, tsr_value* out_value) {
  return add_leaf(graph, name, dtype, rank, dims, TensorKind::kInput, out_value);
}

tsr_status* tsr_graph_parameter(tsr_graph* graph, const char* name, tsr_dtype dtype, int32_t rank,
                                const int64_t* dims, tsr_value* out_value) {
  return add_leaf(graph, name, dtype, rank, dims, TensorKind::kParameter, out_value);
}

tsr_status* tsr_graph_node(tsr_graph* graph, const char* op, const tsr_value* inputs, size_t input_count,
                           const tsr_options* attributes, tsr_value* outputs, size_t capacity,
                           size_t* out_count) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {op, "op"}}));
    if (input_count > 0) TSR_RETURN_IF_ERROR(required({{inputs, "inputs"}}));
    if (capacity > 0) TSR_RETURN_IF_ERROR(required({{outputs, "outputs"}}));
    std::vector<TensorId> ids;
    for (size_t i = 0; i < input_count; ++i) {
      TSR_ASSIGN_OR_RETURN(const TensorId id, value_of(graph->value, inputs[i]));
      ids.push_back(id);
    }
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> made,
                         graph->value.add_node(op, ids, attributes_for(op, attributes)));
    for (size_t i = 0; i < std::min(capacity, made.size()); ++i)
      outputs[i] = static_cast<tsr_value>(index(made[i]));
    if (out_count) *out_count = made.size();
    return {};
  });
}

tsr_status* tsr_graph_scope(tsr_graph* graph, const char* scope) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {scope, "scope"}}));
    graph->value.set_scope(scope);
    return {};
  });
}

tsr_status* tsr_graph_rename(tsr_graph* graph, tsr_value value, const char* name) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {name, "name"}}));
    TSR_ASSIGN_OR_RETURN(const TensorId id, value_of(graph->value, value));
    return graph->value.rename(id, name);
  });
}

tsr_status* tsr_graph_set_trainable(tsr_graph* graph, tsr_value parameter, int32_t trainable) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}}));
    TSR_ASSIGN_OR_RETURN(const TensorId id, value_of(graph->value, parameter));
    if (graph->value.tensor(id).kind != TensorKind::kParameter)
      return Status(StatusCode::kInvalidArgument,
                    format("'{}' is not a parameter", graph->value.tensor(id).name));
    graph->value.set_trainable(id, trainable != 0);
    return {};
  });
}

tsr_status* tsr_graph_output(tsr_graph* graph, const char* name, tsr_value value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {name, "name"}}));
    TSR_ASSIGN_OR_RETURN(const TensorId id, value_of(graph->value, value));
    return graph->value.add_output(name, id);
  });
}

tsr_status* tsr_graph_find(const tsr_graph* graph, const char* tensor_name, tsr_value* out_value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {tensor_name, "tensor_name"}, {out_value, "out_value"}}));
    if (const std::optional<TensorId> id = graph->value.find_tensor(tensor_name)) {
      *out_value = static_cast<tsr_value>(index(*id));
      return {};
    }
    std::vector<std::string> names;
    for (const Tensor& tensor : graph->value.tensors()) names.push_back(tensor.name);
    return Status(StatusCode::kNotFound, format("the graph has no tensor '{}'{}", tensor_name,
                                                nearest_hint(tensor_name, names)));
  });
}

tsr_status* tsr_graph_type(const tsr_graph* graph, tsr_value value, tsr_dtype* out_dtype, int32_t* out_rank,
                           int64_t* out_dims) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}}));
    TSR_ASSIGN_OR_RETURN(const TensorId id, value_of(graph->value, value));
    const TensorType& type = graph->value.type(id);
    if (out_dtype) *out_dtype = static_cast<tsr_dtype>(type.dtype);
    if (out_rank) *out_rank = type.shape.rank();
    if (out_dims) std::copy(type.shape.dims().begin(), type.shape.dims().end(), out_dims);
    return {};
  });
}

tsr_status* tsr_graph_token_loss(const tsr_graph* graph, tsr_graph** out_graph) {
  return derive(graph, out_graph, [&]() -> Result<Graph> {
    Graph copy = graph->value;
    TSR_RETURN_IF_ERROR(add_token_loss(copy));
    return copy;
  });
}

tsr_status* tsr_graph_segments(const tsr_graph* graph, tsr_graph** out_graph) {
  return derive(graph, out_graph, [&] { return with_segments(graph->value); });
}

tsr_status* tsr_graph_training(const tsr_graph* graph, const tsr_options* options, tsr_graph** out_graph) {
  return derive(graph, out_graph, [&]() -> Result<Graph> {
    TSR_ASSIGN_OR_RETURN(const TrainingOptions step,
                         read_training_options(options ? options->value : Options{}));
    return make_training_step(graph->value, step);
  });
}

tsr_status* tsr_graph_evaluation(const tsr_graph* graph, tsr_graph** out_graph) {
  return derive(graph, out_graph, [&] { return make_evaluation(graph->value); });
}

tsr_status* tsr_graph_decoding(const tsr_graph* graph, const tsr_options* options, tsr_graph** out_graph) {
  return derive(graph, out_graph, [&]() -> Result<Graph> {
    const Options none;
    OptionReader reader(options ? options->value : none, "decoding");
    constexpr int64_t kMostTokens = 1 << 24, kMostRows = 4096, kMostPages = 1 << 30;
    ServingOptions serving;
    serving.context = reader.i64("context", 0, 0, kMostTokens);
    serving.rows = reader.i64("rows", 1, 1, kMostRows);
    serving.page_size = reader.i64("page_size", 0, 0, kMostTokens);
    serving.pages = reader.i64("pages", 0, 0, kMostPages);
    const bool sample = reader.flag("sample", true);
    TSR_RETURN_IF_ERROR(reader.finish());
    if (serving.context == 0)
      return Status(StatusCode::kInvalidArgument,
                    "decoding: option 'context' is missing: tokens a sequence may hold");
    if (serving.page_size == 0) serving.page_size = usual_page_size(serving.context);
    if (serving.pages == 0) serving.pages = serving.rows * table_columns(serving);
    if (serving.pages > INT32_MAX / serving.page_size)
      return Status(
          StatusCode::kInvalidArgument,
          format("decoding: {} pages of {} positions are more than an i32 numbers: wanted fewer rows, "
                 "'pages' or a shorter 'context'",
                 serving.pages, serving.page_size));
    TSR_ASSIGN_OR_RETURN(Graph made, make_serving(graph->value, serving));
    return sample ? with_sampling(made) : std::move(made);
  });
}

tsr_status* tsr_graph_profile(const tsr_graph* graph, const tsr_options* options, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{graph, "graph"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report,
                         graph_profile_json(graph->value, options ? options->value : Options{}));
    return give_text(std::move(report), out_text);
  });
}

void tsr_graph_free(tsr_graph* graph) { delete graph; }

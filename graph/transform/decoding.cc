#include "graph/transform/decoding.h"

#include <map>
#include <utility>
#include <variant>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"
#include "graph/transform/wanted_rows.h"

namespace tessera {

namespace {

Status unsuitable(std::string message) { return Status(StatusCode::kInvalidArgument, std::move(message)); }

class Decoder {
 public:
  Decoder(const Graph& forward, const DecodingOptions& options)
      : options_(options), forward_(forward), copy_(forward) {}

  Result<Graph> run() {
    TSR_RETURN_IF_ERROR(find_operands());
    uses_ = operand_uses(forward_);
    selected_ = earliest_wanted(forward_, logits_, uses_);
    TSR_RETURN_IF_ERROR(add_inputs());
    for (size_t i = 0; i < forward_.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = forward_.tensor(id);
      if (tensor.producer != kNoNode) {
        if (tensor.output_index == 0) TSR_RETURN_IF_ERROR(add_node(tensor.producer));
      } else if (copy_.mapped(id) == kNoTensor && (uses_[i] > 0 || tensor.kind == TensorKind::kParameter)) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
      }
      if (id == selected_) TSR_RETURN_IF_ERROR(select_row());
    }
    return add_results();
  }

 private:
  Graph& graph() { return copy_.graph(); }

  Status find_operands() {
    TSR_ASSIGN_OR_RETURN(const LanguageModel model, find_language_model(forward_, "decoding"));
    logits_ = model.logits, tokens_ = model.tokens, positions_ = model.positions;
    if (options_.cache_capacity < 1)
      return unsuitable(format("cache_capacity is {}, wanted at least 1 token", options_.cache_capacity));
    return check_position_table(forward_, model, "cache_capacity", options_.cache_capacity);
  }

  Status add_inputs() {
    TSR_RETURN_IF_ERROR(copy_.copy_tensor(tokens_));
    const TensorType per_sequence{DType::kI32, {forward_.type(tokens_).shape[0]}};
    TSR_ASSIGN_OR_RETURN(start_, graph().add_tensor("start", per_sequence, TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(length_, graph().add_tensor("length", per_sequence, TensorKind::kInput));
    if (positions_ == kNoTensor) return {};
    graph().set_scope("embedding");
    TSR_ASSIGN_OR_RETURN(const TensorId positions, graph().add("positions", {start_, copy_.mapped(tokens_)}));
    graph().set_scope("");
    TSR_RETURN_IF_ERROR(graph().rename(positions, "positions"));
    copy_.replace(positions_, positions);
    return {};
  }

  Status add_node(NodeId id) {
    const Node& node = forward_.node(id);
    if (node.op->name == "moe_route") return copy_.copy_node(id, unbounded_routing(node));
    if (node.op->name == "rope_angles" && attr_i64(node.attrs, "switch_at") > 0) return add_angles(node);
    if (node.op->name != "attention") return copy_.copy_node(id);
    return add_cached_attention(node).with_context(format("attention '{}'", node.scope));
  }

  // A chunk does not know how long its sequence becomes, and all of one is rotated alike: by the first row where the
  // cache holds no longer ones, else by the one that input "rope_row" says.
  Status add_angles(const Node& node) {
    std::vector<Attr> attrs(node.attrs.begin(), node.attrs.end());
    int64_t switch_at = 0;
    for (Attr& attr : attrs)
      if (attr.name == "switch_at") std::swap(switch_at, std::get<int64_t>(attr.value));
    TensorId& factors = factors_.try_emplace(node.inputs[1], kNoTensor).first->second;
    graph().set_scope("embedding");
    if (factors == kNoTensor && options_.cache_capacity <= switch_at) {
      TSR_ASSIGN_OR_RETURN(factors,
                           graph().add("slice", {copy_.mapped(node.inputs[1])},
                                       {{"dim", int64_t{0}}, {"begin", int64_t{0}}, {"end", int64_t{1}}}));
    } else if (factors == kNoTensor) {
      if (rope_row_ == kNoTensor) {
        TSR_ASSIGN_OR_RETURN(rope_row_, graph().add_tensor("rope_row", {DType::kI32, {1}}, TensorKind::kInput));
      }
      TSR_ASSIGN_OR_RETURN(const TensorId rows, graph().add("split_dim", {copy_.mapped(node.inputs[1])},
                                                            {{"dim", int64_t{0}}, {"inner", int64_t{2}}}));
      TSR_ASSIGN_OR_RETURN(factors, graph().add("select_row", {rows, rope_row_}));
    }
    graph().set_scope(node.scope);
    const TensorId inputs[] = {copy_.mapped(node.inputs[0]), factors};
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> angles,
                         graph().add_node("rope_angles", inputs, std::move(attrs)));
    graph().set_scope("");
    copy_.replace(node.outputs[0], angles[0]);
    return {};
  }

  Result<TensorId> add_cache(const Node& node, std::string_view which, TensorId rows) {
    TensorType type = forward_.type(rows);  // [B, T, KV, D]
    type.shape.set(1, options_.cache_capacity);
    return add_scoped_state(graph(), node.scope, which, type);
  }

  Status add_cached_attention(const Node& node) {
    if (attr_i64(node.attrs, "causal") != 1)
      return unsuitable("it is not causal: earlier positions would change with every token");
    if (node.inputs.size() > 3)
      return unsuitable(
          "it has segments: a cache holds one document a sequence; build the model without them");
    const bool with_lse = uses_[index(node.outputs[1])] != 0;
    const TensorId k = node.inputs[1], v = node.inputs[2];
    TSR_ASSIGN_OR_RETURN(const TensorId k_cache, add_cache(node, "k_cache", k));
    TSR_ASSIGN_OR_RETURN(const TensorId v_cache, add_cache(node, "v_cache", v));
    graph().set_scope(node.scope);
    TSR_ASSIGN_OR_RETURN(const TensorId keys,
                         graph().add("cache_write", {k_cache, copy_.mapped(k), start_, length_}));
    TSR_ASSIGN_OR_RETURN(const TensorId values,
                         graph().add("cache_write", {v_cache, copy_.mapped(v), start_, length_}));
    const TensorId operands[] = {copy_.mapped(node.inputs[0]), keys, values, start_};
    TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                         graph().add_node("attention_cached", operands,
                                          {{"scale", attr_f64(node.attrs, "scale")},
                                           {"window", attr_i64(node.attrs, "window")},
                                           {"softcap", attr_f64(node.attrs, "softcap")},
                                           {"with_lse", int64_t{with_lse}}}));
    graph().set_scope("");
    graph().add_update(k_cache, keys);
    graph().add_update(v_cache, values);
    for (size_t i = 0; i < results.size(); ++i) copy_.replace(node.outputs[i], results[i]);
    return {};
  }

  Status select_row() {
    graph().set_scope("output");
    TSR_ASSIGN_OR_RETURN(const TensorId row, graph().add("select_row", {copy_.mapped(selected_), length_}));
    graph().set_scope("");
    copy_.replace(selected_, row);
    return {};
  }

  Result<Graph> add_results() {
    TensorId logits = copy_.mapped(logits_);
    if (const DType dtype = graph().type(logits).dtype; dtype == DType::kBF16 || dtype == DType::kF16) {
      graph().set_scope("output");
      TSR_ASSIGN_OR_RETURN(logits, graph().add("cast", {logits}, {{"dtype", to_text(DType::kF32)}}));
      graph().set_scope("");
    }
    TSR_RETURN_IF_ERROR(graph().add_output("logits", logits));
    if (!options_.sample) return std::move(graph());

    const DType real = graph().type(logits).dtype == DType::kF64 ? DType::kF64 : DType::kF32;
    TSR_ASSIGN_OR_RETURN(const TensorId temperature,
                         graph().add_tensor("temperature", {real, {}}, TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(const TensorId top_k,
                         graph().add_tensor("top_k", {DType::kI32, {}}, TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(const TensorId top_p, graph().add_tensor("top_p", {real, {}}, TensorKind::kInput));
    TSR_ASSIGN_OR_RETURN(const TensorId seed,
                         graph().add_tensor("seed", {DType::kI64, {}}, TensorKind::kInput));
    graph().set_scope("output");
    TSR_ASSIGN_OR_RETURN(const TensorId token,
                         graph().add("sample", {logits, temperature, top_k, top_p, seed, start_, length_}));
    graph().set_scope("");
    TSR_RETURN_IF_ERROR(graph().add_output("token", token));
    return std::move(graph());
  }

  const DecodingOptions options_;
  const Graph& forward_;
  GraphCopy copy_;
  TensorId logits_ = kNoTensor, tokens_ = kNoTensor, positions_ = kNoTensor;  // of the forward graph
  TensorId selected_ = kNoTensor;
  TensorId start_ = kNoTensor, length_ = kNoTensor, rope_row_ = kNoTensor;  // of the new one
  std::map<TensorId, TensorId> factors_;  // of rotations: the row taken, by the forward graph's rows
  std::vector<uint32_t> uses_;                       // operand uses, by forward tensor
};

}  // namespace

Result<Graph> make_decoding(const Graph& forward, const DecodingOptions& options) {
  TSR_ASSIGN_OR_RETURN(const Graph ordered, logits_alone(forward));
  return Decoder(ordered, options).run();
}

}  // namespace tessera

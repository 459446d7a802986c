#include "graph/transform/adapters.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b";

bool is_adapter(const Tensor& tensor) {
  return tensor.kind == TensorKind::kParameter && is_adapter_name(tensor.name);
}

std::string stem_of(std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  return std::string(weight);
}

bool is_product(const Node& node) { return node.op->name == "matmul"; }

// The matmul that makes `id`, or null.
const Node* product_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  return producer != kNoNode && is_product(graph.node(producer)) ? &graph.node(producer) : nullptr;
}

// Whether a node adds an adapter's matmul to the frozen one's.
bool joins(const Graph& graph, const Node& node) {
  if (node.op->name != "add" || node.inputs.size() != 2) return false;
  const Node* base = product_of(graph, node.inputs[0]);
  const Node* up = product_of(graph, node.inputs[1]);
  return base != nullptr && up != nullptr && graph.tensor(up->inputs[1]).name.ends_with(kB) &&
         is_adapter(graph.tensor(up->inputs[1]));
}

class Adapting {
 public:
  Adapting(const Graph& forward, std::span<const TensorId> weights, const AdapterOptions& options)
      : copy_(forward),
        weights_(weights),
        rank_(options.rank),
        factor_(options.alpha == 0 ? 1 : options.alpha / static_cast<double>(options.rank)) {}

  Result<Graph> run() {
    const Graph& source = copy_.source();
    pairs_.resize(source.tensors().size());
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
        if (tensor.kind == TensorKind::kParameter) copy_.graph().set_trainable(copy_.mapped(id), false);
      } else if (tensor.output_index == 0) {
        const Node& node = source.node(tensor.producer);
        const bool adapted =
            is_product(node) && std::ranges::find(weights_, node.inputs[1]) != weights_.end();
        TSR_RETURN_IF_ERROR(adapted ? adapt(node) : copy_.copy_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  struct Pair {
    TensorId a = kNoTensor, b = kNoTensor;
  };

  // One pair a weight, however many matmuls read it.
  Result<Pair> pair_of(TensorId weight, bool transposed) {
    Pair& pair = pairs_[index(weight)];
    if (pair.a != kNoTensor) return pair;
    const Tensor& tensor = copy_.source().tensor(weight);
    const std::string stem = stem_of(tensor.name);
    const int64_t rows = tensor.type.shape[0], columns = tensor.type.shape[1];
    const Shape rank_rows{rank_, columns}, rank_columns{rows, rank_};
    Graph& graph = copy_.graph();
    TSR_ASSIGN_OR_RETURN(pair.a, graph.add_tensor(stem + std::string(kA),
                                                  {tensor.type.dtype, transposed ? rank_rows : rank_columns},
                                                  TensorKind::kParameter));
    TSR_ASSIGN_OR_RETURN(pair.b, graph.add_tensor(stem + std::string(kB),
                                                  {tensor.type.dtype, transposed ? rank_columns : rank_rows},
                                                  TensorKind::kParameter));
    return pair;
  }

  Status adapt(const Node& node) {
    Graph& graph = copy_.graph();
    const int64_t transposed = attr_i64(node.attrs, "trans_w");
    TSR_ASSIGN_OR_RETURN(const Pair pair, pair_of(node.inputs[1], transposed == 1));
    graph.set_scope(node.scope);
    const std::vector<Attr> plain = {{"trans_w", transposed},
                                     {"allow_tf32", attr_i64(node.attrs, "allow_tf32")}};
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    TSR_ASSIGN_OR_RETURN(const auto base, graph.add_node("matmul", inputs, plain));
    TSR_ASSIGN_OR_RETURN(TensorId low, graph.add("matmul", {inputs[0], pair.a}, plain));
    if (factor_ != 1) {
      TSR_ASSIGN_OR_RETURN(low, graph.add("scale", {low}, {{"factor", factor_}}));
    }
    TSR_ASSIGN_OR_RETURN(const TensorId up, graph.add("matmul", {low, pair.b}, plain));
    TSR_ASSIGN_OR_RETURN(const TensorId sum, graph.add("add", {base[0], up}));
    std::vector<TensorId> results = {sum};
    // The matmul's activation now follows the sum.
    if (const std::string& activation = attr_string(node.attrs, "activation"); activation != "none") {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {sum}));
      results = {active, sum};
    }
    graph.set_scope("");
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      copy_.replace(node.outputs[i], results[i]);
      const std::string& name = copy_.source().tensor(node.outputs[i]).name;
      if (!name.starts_with('%')) TSR_RETURN_IF_ERROR(graph.rename(results[i], name));
    }
    return {};
  }

  GraphCopy copy_;
  std::span<const TensorId> weights_;
  const int64_t rank_;
  const double factor_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::vector<TensorId> adaptable_weights(const Graph& forward) {
  std::vector<bool> product(forward.tensors().size()), other(forward.tensors().size());
  for (const Node& node : forward.nodes())
    for (size_t i = 0; i < node.inputs.size(); ++i)
      (is_product(node) && i == 1 ? product : other)[index(node.inputs[i])] = true;
  std::vector<TensorId> all, of_blocks;
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter)) {
    const Tensor& tensor = forward.tensor(id);
    if (!product[index(id)] || other[index(id)] || is_adapter(tensor)) continue;
    all.push_back(id);
    if (tensor.name.starts_with("block.")) of_blocks.push_back(id);
  }
  return of_blocks.empty() ? all : of_blocks;
}

Result<Graph> with_adapters(const Graph& forward, std::span<const TensorId> weights,
                            const AdapterOptions& options) {
  const auto refuse = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, "adapters: " + std::move(message));
  };
  if (options.rank < 1) return refuse(format("the rank is {}, wanted 1 or more", options.rank));
  if (!(options.alpha >= 0)) return refuse(format("alpha is {}, wanted 0 or more", options.alpha));
  if (weights.empty()) return refuse("no weight was chosen, wanted at least one");
  if (!find_adapters(forward).empty())
    return refuse("the model has some already; merge them first, or train those");
  const std::vector<TensorId> known = adaptable_weights(forward);
  for (const TensorId weight : weights) {
    const Tensor& tensor = forward.tensor(weight);
    if (std::ranges::find(known, weight) == known.end())
      return refuse(format("'{}' is not a matrix that products alone read", tensor.name));
    const int64_t most = std::min(tensor.type.shape[0], tensor.type.shape[1]);
    if (options.rank > most)
      return refuse(format("the rank is {}, '{}' {} has no more than {}", options.rank, tensor.name,
                           to_text(tensor.type), most));
  }
  for (const Node& node : forward.nodes())
    if (node.phase != Phase::kForward)
      return Status(StatusCode::kFailedPrecondition, "adapters are added before a graph is differentiated");
  return Adapting(forward, weights, options).run();
}

bool is_adapter_name(std::string_view parameter) {
  return parameter.ends_with(kA) || parameter.ends_with(kB);
}

std::vector<Adapter> find_adapters(const Graph& forward) {
  std::vector<Adapter> found;
  for (const Node& node : forward.nodes()) {
    if (!joins(forward, node)) continue;
    const Node& base = *product_of(forward, node.inputs[0]);
    const Node& up = *product_of(forward, node.inputs[1]);
    Adapter it;
    TensorId low = up.inputs[0];
    if (const NodeId producer = forward.tensor(low).producer;
        producer != kNoNode && forward.node(producer).op->name == "scale") {
      it.factor = attr_f64(forward.node(producer).attrs, "factor");
      low = forward.node(producer).inputs[0];
    }
    const Node* down = product_of(forward, low);
    if (down == nullptr || !is_adapter(forward.tensor(down->inputs[1]))) continue;
    it.weight = forward.tensor(base.inputs[1]).name;
    it.a = forward.tensor(down->inputs[1]).name;
    it.b = forward.tensor(up.inputs[1]).name;
    it.transposed = attr_i64(base.attrs, "trans_w") == 1;
    if (std::ranges::none_of(found, [&](const Adapter& other) { return other.a == it.a; }))
      found.push_back(std::move(it));
  }
  return found;
}

Result<Graph> without_adapters(const Graph& forward) {
  GraphCopy copy(forward);
  std::vector<bool> gone(forward.tensors().size());
  for (size_t i = 0; i < forward.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = forward.tensor(id);
    if (tensor.producer == kNoNode) {
      gone[i] = is_adapter(tensor);
      if (gone[i]) continue;
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      if (tensor.kind == TensorKind::kParameter) copy.graph().set_trainable(copy.mapped(id), true);
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = forward.node(tensor.producer);
    if (joins(forward, node)) {
      copy.replace(id, copy.mapped(node.inputs[0]));
      if (!tensor.name.starts_with('%'))
        TSR_RETURN_IF_ERROR(copy.graph().rename(copy.mapped(id), tensor.name));
    } else if (std::ranges::any_of(node.inputs, [&](TensorId input) { return gone[index(input)]; })) {
      for (const TensorId output : node.outputs) gone[index(output)] = true;
    } else {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  return std::move(copy.graph());
}

}  // namespace tessera

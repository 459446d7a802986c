#include "graph/transform/adapters.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/prune.h"

namespace tessera {

namespace {

constexpr std::string_view kA = ".lora_a", kB = ".lora_b", kBias = ".lora_bias",
                           kMagnitude = ".lora_magnitude", kA0 = ".lora_a0", kB0 = ".lora_b0";

// Salts of adapters' dropouts are at least this; a model's own are smaller.
constexpr int64_t kFirstSalt = int64_t{1} << 32;

bool is_adapter(const Tensor& tensor) {
  return tensor.kind == TensorKind::kParameter && is_adapter_name(tensor.name);
}

std::string stem_of(std::string_view weight) {
  constexpr std::string_view kWeight = ".weight";
  if (weight.ends_with(kWeight)) weight.remove_suffix(kWeight.size());
  return std::string(weight);
}

bool is_product(const Node& node) { return node.op->weight.use == WeightUse::kProduct; }

// Returns the product that computes `id`, or null.
const Node* product_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  return producer != kNoNode && is_product(graph.node(producer)) ? &graph.node(producer) : nullptr;
}

bool is_look_up(const Node& node) { return node.op->weight.use == WeightUse::kRows; }

// Returns the product or look-up that computes `id`, or null.
const Node* base_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  if (producer == kNoNode) return nullptr;
  const Node& node = graph.node(producer);
  return is_product(node) || is_look_up(node) ? &node : nullptr;
}

// Returns the weight of a product, or the table of a look-up.
TensorId weight_of(const Node& node) { return node.inputs[static_cast<size_t>(node.op->weight.operand)]; }

bool is_biased(const Node& node) { return node.op->algebra == Algebra::kBiased; }

const Node* producer_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  return producer == kNoNode ? nullptr : &graph.node(producer);
}

// Finds the matmul of the second matrix in the addend to the base: with a start the first operand of the difference.
const Node* up_of(const Graph& graph, TensorId added) {
  const Node* node = producer_of(graph, added);
  if (node != nullptr && node->op->algebra == Algebra::kDifference) {
    const Node* begin = product_of(graph, node->inputs[1]);
    if (begin == nullptr || !graph.tensor(begin->inputs[1]).name.ends_with(kB0)) return nullptr;
    node = producer_of(graph, node->inputs[0]);
  }
  return node != nullptr && is_product(*node) ? node : nullptr;
}

// The first product of a low-rank pair, or null, and the factor on it. `second` is the pair's second product.
struct FirstProduct {
  const Node* node = nullptr;
  double factor = 1;
};
FirstProduct first_of(const Graph& graph, const Node& second) {
  TensorId low = second.inputs[0];
  FirstProduct first;
  if (const Node* scaled = producer_of(graph, low);
      scaled != nullptr && scaled->op->algebra == Algebra::kMultiple) {
    first.factor = attr_f64(scaled->attrs, "factor");
    low = scaled->inputs[0];
  }
  first.node = base_of(graph, low);
  return first;
}

// Returns the parameter of a magnitude whose ratio is broadcast over all rows, or none.
TensorId magnitude_of(const Graph& graph, TensorId everywhere) {
  const Node* spread = producer_of(graph, everywhere);
  if (spread == nullptr || spread->op->algebra != Algebra::kRepetition) return kNoTensor;
  const Node* ratio = producer_of(graph, spread->inputs[0]);
  const bool is_ratio = ratio != nullptr && ratio->op->algebra == Algebra::kQuotient &&
                        graph.tensor(ratio->inputs[0]).name.ends_with(kMagnitude);
  return is_ratio ? ratio->inputs[0] : kNoTensor;
}

// Returns the sum W x + factor * A B x that `node` multiplies by a magnitude's ratio; kNoTensor for other nodes.
TensorId scaled_sum_of(const Graph& graph, const Node& node) {
  const bool scales =
      node.op->algebra == Algebra::kProduct && magnitude_of(graph, node.inputs[1]) != kNoTensor;
  return scales ? node.inputs[0] : kNoTensor;
}

// Returns whether a node adds an adapter's matmul to the frozen matmul or embedding.
bool joins(const Graph& graph, const Node& node) {
  if (node.op->algebra != Algebra::kSum) return false;
  const Node* base = base_of(graph, node.inputs[0]);
  const Node* up = up_of(graph, node.inputs[1]);
  return base != nullptr && up != nullptr && graph.tensor(up->inputs[1]).name.ends_with(kB) &&
         is_adapter(graph.tensor(up->inputs[1]));
}

class Adapting {
 public:
  Adapting(const Graph& forward, std::span<const AdapterPlacement> placements) : copy_(forward) {
    pairs_.resize(forward.tensors().size());
    for (const AdapterPlacement& placement : placements)
      pairs_[index(placement.weight)].placement = &placement;
  }

  Result<Graph> run() {
    const Graph& source = copy_.source();
    for (size_t i = 0; i < source.tensors().size(); ++i) {
      const TensorId id{static_cast<uint32_t>(i)};
      const Tensor& tensor = source.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_.copy_tensor(id));
        if (tensor.kind == TensorKind::kParameter) copy_.graph().set_trainable(copy_.mapped(id), false);
      } else if (tensor.output_index == 0) {
        const Node& node = source.node(tensor.producer);
        const bool is_adapted =
            (is_product(node) || is_look_up(node)) && pairs_[index(weight_of(node))].placement != nullptr;
        TSR_RETURN_IF_ERROR(is_adapted ? adapt(node) : copy_.copy_node(tensor.producer));
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  struct Pair {
    const AdapterPlacement* placement = nullptr;
    TensorId a = kNoTensor, b = kNoTensor, bias = kNoTensor, magnitude = kNoTensor;
    TensorId a0 = kNoTensor, b0 = kNoTensor;
  };

  // Adds a parameter; adapters that share it add it once.
  Result<TensorId> parameter(const std::string& name, const TensorType& type) {
    Graph& graph = copy_.graph();
    const std::optional<TensorId> found = graph.find_tensor(name);
    if (!found) return graph.add_tensor(name, type, TensorKind::kParameter);
    if (graph.type(*found) == type) return *found;
    return Status(StatusCode::kInvalidArgument,
                  format("adapters: '{}' is {} for one weight and {} for another", name,
                         to_text(graph.type(*found)), to_text(type)));
  }

  // Returns the pair of a weight, one for all nodes that read it.
  Result<Pair> pair_of(const Node& node) {
    Pair& pair = pairs_[index(weight_of(node))];
    if (pair.a != kNoTensor) return pair;
    const Tensor& tensor = copy_.source().tensor(weight_of(node));
    const AdapterPlacement& placement = *pair.placement;
    const std::string stem = stem_of(tensor.name);
    const int64_t rows = tensor.type.shape[0], columns = tensor.type.shape[1], rank = placement.rank;
    const Shape rank_rows{rank, columns}, rank_columns{rows, rank};
    const bool is_table = is_look_up(node);
    const bool transposed = !is_table && attr_i64(node.attrs, "trans_w") == 1;
    const std::string a = placement.a.empty() ? first_matrix_name(tensor.name) : placement.a;
    const auto type = [&](Shape shape) { return TensorType{tensor.type.dtype, std::move(shape)}; };
    const TensorType a_type = type(transposed ? rank_rows : rank_columns),
                     b_type = type(is_table     ? Shape{columns, rank}
                                   : transposed ? rank_columns
                                                : rank_rows);
    TSR_ASSIGN_OR_RETURN(pair.a, parameter(a, a_type));
    TSR_ASSIGN_OR_RETURN(pair.b, parameter(stem + std::string(kB), b_type));
    if (placement.has_start) {
      TSR_ASSIGN_OR_RETURN(pair.a0, parameter(stem + std::string(kA0), a_type));
      TSR_ASSIGN_OR_RETURN(pair.b0, parameter(stem + std::string(kB0), b_type));
      for (const TensorId id : {pair.a0, pair.b0}) copy_.graph().set_trainable(id, false);
    }
    if (placement.has_bias) {
      TSR_ASSIGN_OR_RETURN(pair.bias,
                           parameter(stem + std::string(kBias), type({transposed ? rows : columns})));
    }
    if (placement.has_magnitude) {
      TSR_ASSIGN_OR_RETURN(pair.magnitude,
                           parameter(stem + std::string(kMagnitude), type({transposed ? rows : columns})));
    }
    return pair;
  }

  // Computes the factor of each output of the product: its magnitude / norm of its row of W + factor * A B.
  Result<TensorId> ratio(const Node& node, const Pair& pair, TensorId weight) {
    Graph& graph = copy_.graph();
    const bool transposed = attr_i64(node.attrs, "trans_w") == 1;
    TSR_ASSIGN_OR_RETURN(const TensorId squares,
                         graph.add("adapter_row_squares", {weight, pair.a, pair.b},
                                   {{"trans_w", int64_t{transposed}}, {"factor", pair.placement->factor}}));
    TSR_ASSIGN_OR_RETURN(const TensorId norm, graph.add("sqrt", {squares}));
    return graph.add("div", {pair.magnitude, norm});
  }

  // Computes the sum of base and adapter times the ratio, and the bias of the base.
  Result<TensorId> scaled_sum(const Node& node, const Pair& pair, const std::vector<TensorId>& inputs,
                              TensorId sum) {
    Graph& graph = copy_.graph();
    TSR_ASSIGN_OR_RETURN(const TensorId each, ratio(node, pair, inputs[1]));
    std::vector<int64_t> leading;
    for (int dim = 0; dim + 1 < graph.type(sum).shape.rank(); ++dim) leading.push_back(dim);
    TSR_ASSIGN_OR_RETURN(const TensorId everywhere, graph.add("broadcast", {each, sum}, {{"axes", leading}}));
    Result<TensorId> scaled = graph.add("mul", {sum, everywhere});
    if (!scaled.ok() || inputs.size() < 3) return scaled;
    return graph.add("add_bias", {*scaled, inputs[2]});
  }

  // Returns the operand of A: training drops some elements, the same for all weights that share A.
  Result<TensorId> dropped(TensorId x, const Pair& pair) {
    if (pair.placement->dropout == 0) return x;
    Graph& graph = copy_.graph();
    std::optional<TensorId> seed = graph.find_tensor("seed");
    if (!seed) {
      TSR_ASSIGN_OR_RETURN(seed, graph.add_tensor("seed", {DType::kI64, {}}, TensorKind::kInput));
    }
    return graph.add("dropout", {x, *seed},
                     {{"p", pair.placement->dropout}, {"salt", adapter_dropout_salt(graph.tensor(pair.a).name)}});
  }

  // Computes the start: factor * A0 B0 x.
  Result<TensorId> start(TensorId x, const Pair& pair, const std::vector<Attr>& plain) {
    Graph& graph = copy_.graph();
    TSR_ASSIGN_OR_RETURN(TensorId low, graph.add("matmul", {x, pair.a0}, plain));
    if (const double factor = pair.placement->factor; factor != 1) {
      TSR_ASSIGN_OR_RETURN(low, graph.add("scale", {low}, {{"factor", factor}}));
    }
    return graph.add("matmul", {low, pair.b0}, plain);
  }

  // Computes the addend to W x: factor * A B x, minus the start.
  Result<TensorId> addend(const Node& node, const Pair& pair, const std::vector<TensorId>& inputs) {
    Graph& graph = copy_.graph();
    const bool is_table = is_look_up(node);
    std::vector<Attr> plain = {{"trans_w", is_table ? int64_t{1} : attr_i64(node.attrs, "trans_w")}};
    if (!is_table) plain.push_back({"allow_tf32", attr_i64(node.attrs, "allow_tf32")});
    TSR_ASSIGN_OR_RETURN(const TensorId x, is_table ? inputs[1] : dropped(inputs[0], pair));
    Result<TensorId> low =
        is_table ? graph.add("embedding", {pair.a, x}) : graph.add("matmul", {x, pair.a}, plain);
    TSR_RETURN_IF_ERROR(low.status());
    if (const double factor = pair.placement->factor; factor != 1) {
      TSR_ASSIGN_OR_RETURN(low, graph.add("scale", {*low}, {{"factor", factor}}));
    }
    if (pair.bias == kNoTensor) {
      TSR_ASSIGN_OR_RETURN(const TensorId up, graph.add("matmul", {*low, pair.b}, plain));
      if (pair.a0 == kNoTensor) return up;
      TSR_ASSIGN_OR_RETURN(const TensorId begin, start(inputs[0], pair, plain));
      return graph.add("sub", {up, begin});
    }
    TSR_ASSIGN_OR_RETURN(const TensorId bias,
                         graph.add("scale", {pair.bias}, {{"factor", pair.placement->factor}}));
    return graph.add("matmul", {*low, pair.b, bias}, plain);
  }

  Status adapt(const Node& node) {
    Graph& graph = copy_.graph();
    TSR_ASSIGN_OR_RETURN(const Pair pair, pair_of(node));
    graph.set_scope(node.scope);
    std::vector<TensorId> inputs;
    for (const TensorId input : node.inputs) inputs.push_back(copy_.mapped(input));
    std::vector<Attr> plain;
    if (is_product(node))
      plain = {{"trans_w", attr_i64(node.attrs, "trans_w")},
               {"allow_tf32", attr_i64(node.attrs, "allow_tf32")}};
    const bool has_magnitude = pair.magnitude != kNoTensor;
    const std::span<const TensorId> read = std::span(inputs).first(has_magnitude ? 2 : inputs.size());
    TSR_ASSIGN_OR_RETURN(const auto base, graph.add_node(node.op->name, read, plain));
    TSR_ASSIGN_OR_RETURN(const TensorId up, addend(node, pair, inputs));
    TSR_ASSIGN_OR_RETURN(TensorId sum, graph.add("add", {base[0], up}));
    if (has_magnitude) {
      TSR_ASSIGN_OR_RETURN(sum, scaled_sum(node, pair, inputs, sum));
    }
    std::vector<TensorId> results = {sum};
    // The matmul's activation now comes after the sum.
    const std::string activation =
        is_product(node) ? std::string(attr_string_or(node.attrs, "activation", "none")) : "none";
    if (activation != "none") {
      TSR_ASSIGN_OR_RETURN(const TensorId active, graph.add(activation, {sum}));
      results = {active, sum};
    }
    graph.set_scope("");
    for (size_t i = 0; i < node.outputs.size(); ++i)
      TSR_RETURN_IF_ERROR(copy_.substitute(node.outputs[i], results[i]));
    return {};
  }

  GraphCopy copy_;
  std::vector<Pair> pairs_;  // by tensor of the source
};

Status refuse(std::string message) {
  return Status(StatusCode::kInvalidArgument, "adapters: " + std::move(message));
}

}  // namespace

Result<Graph> with_adapters(const Graph& forward, std::span<const TensorId> weights,
                            const AdapterOptions& options) {
  if (!(options.alpha >= 0)) return refuse(format("alpha is {}, wanted 0 or more", options.alpha));
  const double factor = options.alpha == 0 ? 1 : options.alpha / static_cast<double>(options.rank);
  std::vector<AdapterPlacement> placements;
  for (const TensorId weight : weights) {
    placements.push_back({.weight = weight, .rank = options.rank, .factor = factor});
    TSR_RETURN_IF_ERROR(check_new_adapter(forward, placements.back()));
  }
  return with_adapters(forward, placements);
}

Result<Graph> with_adapters(const Graph& forward, std::span<const AdapterPlacement> placements) {
  if (placements.empty()) return refuse("no weight was chosen, wanted at least one");
  if (!find_adapters(forward).empty())
    return refuse("the model has some already; merge them first, or train those");
  TSR_RETURN_IF_ERROR(check_adapter_placements(forward, placements));
  for (const Node& node : forward.nodes())
    if (node.phase != Phase::kForward)
      return Status(StatusCode::kFailedPrecondition, "adapters are added before a graph is differentiated");
  return Adapting(forward, placements).run();
}

bool is_adapter_dropout(const Node& node) {
  return node.op->is_noise && attr_i64(node.attrs, "salt") >= kFirstSalt;
}

std::string first_matrix_name(std::string_view weight) { return stem_of(weight) + std::string(kA); }

int64_t adapter_dropout_salt(std::string_view first_matrix) {
  Hash hash;
  hash.add(first_matrix);
  return kFirstSalt + static_cast<int64_t>(hash.value() >> 11);  // below 2^53 + 2^32, which JSON's readers hold
}

bool is_adapter_name(std::string_view parameter) {
  return parameter.ends_with(kA) || parameter.ends_with(kB) || parameter.ends_with(kBias) ||
         parameter.ends_with(kMagnitude) || parameter.ends_with(kA0) || parameter.ends_with(kB0);
}

std::vector<Adapter> find_adapters(const Graph& forward) {
  std::vector<Adapter> found;
  std::map<TensorId, size_t> sums;  // to their adapters
  for (const Node& node : forward.nodes()) {
    if (const TensorId sum = scaled_sum_of(forward, node); sum != kNoTensor && sums.contains(sum)) {
      found[sums[sum]].magnitude = forward.tensor(magnitude_of(forward, node.inputs[1])).name;
      continue;
    }
    if (const Node* scaled = is_biased(node) ? producer_of(forward, node.inputs[0]) : nullptr) {
      const TensorId sum = scaled_sum_of(forward, *scaled);
      if (sum != kNoTensor && sums.contains(sum))
        found[sums[sum]].base_bias = forward.tensor(node.inputs[1]).name;
    }
    if (!joins(forward, node)) continue;
    const Node& base = *base_of(forward, node.inputs[0]);
    const Node& up = *up_of(forward, node.inputs[1]);
    Adapter it;
    const auto [down, factor] = first_of(forward, up);
    it.factor = factor;
    if (down == nullptr || is_look_up(*down) != is_look_up(base)) continue;
    const Tensor& a = forward.tensor(weight_of(*down));
    if (!is_adapter(a)) continue;
    it.is_table = is_look_up(base);
    it.weight = forward.tensor(weight_of(base)).name;
    it.a = a.name;
    if (const Node* drop = producer_of(forward, down->inputs[0]);
        drop != nullptr && is_adapter_dropout(*drop))
      it.dropout = attr_f64(drop->attrs, "p");
    if (const Node& added = *producer_of(forward, node.inputs[1]);
        added.op->algebra == Algebra::kDifference) {
      // A start matches its pair: the same shapes, operand and factor.
      const Node& second = *product_of(forward, added.inputs[1]);
      const FirstProduct first = first_of(forward, second);
      if (first.node == nullptr || !is_product(*first.node) || it.is_table) continue;
      const Tensor &a0 = forward.tensor(weight_of(*first.node)), &b0 = forward.tensor(second.inputs[1]);
      const bool is_alike = a0.type == a.type && b0.type == forward.tensor(up.inputs[1]).type &&
                            first.factor == factor && first.node->inputs[0] == base.inputs[0] &&
                            attr_i64(first.node->attrs, "trans_w") == attr_i64(base.attrs, "trans_w") &&
                            attr_i64(second.attrs, "trans_w") == attr_i64(up.attrs, "trans_w");
      if (!is_alike || !is_adapter(a0) || !is_adapter(b0)) continue;
      it.a0 = a0.name, it.b0 = b0.name;
    }
    it.b = forward.tensor(up.inputs[1]).name;
    if (up.inputs.size() > 2) {
      const NodeId scale = forward.tensor(up.inputs[2]).producer;
      if (scale == kNoNode) continue;
      it.bias = forward.tensor(forward.node(scale).inputs[0]).name;
    }
    if (!it.is_table && base.inputs.size() > 2) it.base_bias = forward.tensor(base.inputs[2]).name;
    it.transposed = !it.is_table && attr_i64(base.attrs, "trans_w") == 1;
    it.rank = a.type.shape[it.transposed ? 0 : 1];
    const auto known = std::ranges::find(found, it.b, &Adapter::b);
    sums[node.outputs[0]] = static_cast<size_t>(known - found.begin());
    if (known == found.end()) found.push_back(std::move(it));
  }
  return found;
}

Result<Graph> without_adapters(const Graph& given) {
  TSR_ASSIGN_OR_RETURN(const Graph forward, without_dropout(given, kFirstSalt));
  std::vector<bool> never_trains(forward.tensors().size());
  for (const Node& node : forward.nodes())
    if (const int i = node.op->constant_input; i >= 0 && node.inputs.size() > static_cast<size_t>(i))
      never_trains[index(node.inputs[static_cast<size_t>(i)])] = true;
  GraphCopy copy(forward);
  std::vector<bool> gone(forward.tensors().size());
  // By tensor of the source: the base's matmul whose scaled sum it is; the matmul's bias follows.
  std::vector<const Node*> scaled(forward.tensors().size());
  bool has_left_over = false;
  for (size_t i = 0; i < forward.tensors().size(); ++i) {
    const TensorId id{static_cast<uint32_t>(i)};
    const Tensor& tensor = forward.tensor(id);
    if (tensor.producer == kNoNode) {
      gone[i] = is_adapter(tensor);
      if (gone[i]) continue;
      TSR_RETURN_IF_ERROR(copy.copy_tensor(id));
      if (tensor.kind == TensorKind::kParameter)
        copy.graph().set_trainable(copy.mapped(id), !never_trains[i]);
      continue;
    }
    if (tensor.output_index != 0) continue;
    const Node& node = forward.node(tensor.producer);
    if (const TensorId sum = scaled_sum_of(forward, node); sum != kNoTensor) {
      TSR_RETURN_IF_ERROR(copy.substitute(id, copy.mapped(sum)));
      scaled[i] = base_of(forward, producer_of(forward, sum)->inputs[0]);
    } else if (const Node* base = is_biased(node) ? scaled[index(node.inputs[0])] : nullptr) {
      const std::vector<TensorId> inputs = {copy.mapped(base->inputs[0]), copy.mapped(base->inputs[1]),
                                            copy.mapped(node.inputs[1])};
      copy.graph().set_scope(base->scope);
      TSR_ASSIGN_OR_RETURN(const auto made, copy.graph().add_node("matmul", inputs, base->attrs));
      copy.graph().set_scope("");
      TSR_RETURN_IF_ERROR(copy.substitute(id, made[0]));
      has_left_over = true;
    } else if (joins(forward, node)) {
      TSR_RETURN_IF_ERROR(copy.substitute(id, copy.mapped(node.inputs[0])));
    } else if (std::ranges::any_of(node.inputs, [&](TensorId input) { return gone[index(input)]; })) {
      for (const TensorId output : node.outputs) gone[index(output)] = true;
    } else {
      TSR_RETURN_IF_ERROR(copy.copy_node(tensor.producer));
    }
  }
  TSR_RETURN_IF_ERROR(copy.copy_results());
  if (has_left_over) return prune(copy.graph());
  return std::move(copy.graph());
}

}  // namespace tessera

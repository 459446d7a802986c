#include "graph/transform/latent_attention.h"

#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera {

namespace {

constexpr int64_t kHeadDim = 3;  // of [B, T, H, D]

// Returns the node that computes a tensor by such a formula; null for others.
const Node* producer_of(const Graph& graph, TensorId id, Algebra algebra) {
  const NodeId producer = graph.tensor(id).producer;
  if (producer == kNoNode || graph.node(producer).op->algebra != algebra) return nullptr;
  return &graph.node(producer);
}

// Returns the product by a weight that computes a tensor; null for others.
const Node* product_of(const Graph& graph, TensorId id) {
  const NodeId producer = graph.tensor(id).producer;
  const bool is_product = producer != kNoNode && graph.node(producer).op->weight.use == WeightUse::kProduct;
  return is_product ? &graph.node(producer) : nullptr;
}

// HeadSlice: a range of the elements of each head of a tensor.
struct HeadSlice {
  TensorId of = kNoTensor;
  LatentAttention::Range range;
};

std::optional<HeadSlice> find_head_slice(const Graph& graph, TensorId id) {
  const Node* const slice = producer_of(graph, id, Algebra::kSlice);
  if (slice == nullptr || attr_i64(slice->attrs, "dim") != kHeadDim) return std::nullopt;
  return HeadSlice{slice->inputs[0], {attr_i64(slice->attrs, "begin"), attr_i64(slice->attrs, "end")}};
}

// Returns the operand x of broadcast(x, like) along the heads: the tensor that all heads share.
TensorId find_shared(const Graph& graph, TensorId id) {
  const Node* const broadcast = producer_of(graph, id, Algebra::kRepetition);
  if (broadcast == nullptr || graph.type(broadcast->inputs[0]).shape.rank() != 3) return kNoTensor;
  const auto axes = attr_i64_list(broadcast->attrs, "axes");
  return axes.size() == 1 && axes[0] == 2 ? broadcast->inputs[0] : kNoTensor;
}

// LinearNode: a node of a function that is linear in the latent vector.
struct LinearNode {
  enum class Kind : uint8_t { kProduct, kSum, kDifference, kMultiple };
  Kind kind;
  const Node* node;
};

std::optional<LinearNode> find_linear(const Graph& graph, TensorId id) {
  using enum LinearNode::Kind;
  if (const Node* const product = product_of(graph, id)) {
    const bool is_plain = product->inputs.size() == 2 && attr_i64(product->attrs, "trans_w") == 1 &&
                          attr_string_or(product->attrs, "activation", "none") == "none" &&
                          graph.type(product->inputs[0]).shape.rank() == 3;
    return is_plain ? std::optional(LinearNode{kProduct, product}) : std::nullopt;
  }
  if (const Node* const sum = producer_of(graph, id, Algebra::kSum)) return LinearNode{kSum, sum};
  if (const Node* const difference = producer_of(graph, id, Algebra::kDifference))
    return LinearNode{kDifference, difference};
  if (const Node* const multiple = producer_of(graph, id, Algebra::kMultiple))
    return LinearNode{kMultiple, multiple};
  return std::nullopt;
}

// Returns the operand of the first product of all: the latent vector, if every other one begins with it.
TensorId find_first_operand(const Graph& graph, TensorId product) {
  for (auto linear = find_linear(graph, product); linear; linear = find_linear(graph, product)) {
    product = linear->node->inputs[0];
    if (linear->kind == LinearNode::Kind::kProduct) return product;
  }
  return kNoTensor;
}

// Collects the matmuls between `latent` and `id`; false for any other node between them, or more than `left` nodes.
bool find_matmuls(const Graph& graph, TensorId id, TensorId latent, int& left, std::vector<NodeId>& matmuls) {
  if (id == latent) return true;
  const auto linear = find_linear(graph, id);
  if (!linear || left-- == 0) return false;
  if (linear->kind == LinearNode::Kind::kProduct) matmuls.push_back(graph.tensor(id).producer);
  const bool has_two =
      linear->kind == LinearNode::Kind::kSum || linear->kind == LinearNode::Kind::kDifference;
  return find_matmuls(graph, linear->node->inputs[0], latent, left, matmuls) &&
         (!has_two || find_matmuls(graph, linear->node->inputs[1], latent, left, matmuls));
}

// Finds the product of a latent vector behind the heads [B, T, H, M] that it was split into.
bool find_product(const Graph& graph, TensorId heads, LatentAttention& found) {
  const Node* const split = producer_of(graph, heads, Algebra::kSplitDim);
  if (split == nullptr || attr_i64(split->attrs, "dim") != 2) return false;
  found.product = split->inputs[0];
  found.latent = find_first_operand(graph, found.product);
  int left = 32;  // an adapter has fewer than 10
  if (found.latent == kNoTensor || !find_matmuls(graph, found.product, found.latent, left, found.matmuls))
    return false;
  found.rank = graph.type(found.latent).shape[2];
  return true;
}

// Absorbed: products with transposed weights, from the heads' side to the latent's, and back from there.
class Absorbed {
 public:
  Absorbed(GraphCopy& copy, const LatentAttention& latent) : copy_(copy), latent_(latent) {}

  // queries [B, T, H, n], multiplied with `keys` of each head -> [B, T, H, KA].
  Result<TensorId> queries(TensorId of, TensorId x) {
    const LinearNode linear = *find_linear(copy_.source(), of);
    if (linear.kind == LinearNode::Kind::kProduct) {
      TSR_ASSIGN_OR_RETURN(
          const TensorId y,
          add("head_matmul", {x, weight(linear)},
              {{"trans_w", int64_t{0}}, {"begin", latent_.keys.begin}, {"end", latent_.keys.end}}));
      return towards_latent(linear.node->inputs[0], y);
    }
    return combined(linear, [&](TensorId operand) { return queries(operand, x); });
  }

  // sums [B, T, H, KA] of latent vectors -> `values` of each head, [B, T, H, n].
  Result<TensorId> values(TensorId of, TensorId x) {
    const LinearNode linear = *find_linear(copy_.source(), of);
    if (linear.kind == LinearNode::Kind::kProduct) {
      TSR_ASSIGN_OR_RETURN(const TensorId y, from_latent(linear.node->inputs[0], x));
      return add("head_matmul", {y, weight(linear)},
                 {{"begin", latent_.values.begin}, {"end", latent_.values.end}});
    }
    return combined(linear, [&](TensorId operand) { return values(operand, x); });
  }

 private:
  Result<TensorId> add(std::string_view op, std::initializer_list<TensorId> inputs,
                       std::vector<Attr> attrs = {}) {
    return copy_.graph().add(op, inputs, std::move(attrs));
  }
  TensorId weight(const LinearNode& linear) const { return copy_.mapped(linear.node->inputs[1]); }

  // The sum, difference or multiple of `of_operand` of the node's operands.
  template <class OfOperand>
  Result<TensorId> combined(const LinearNode& linear, OfOperand of_operand) {
    TSR_ASSIGN_OR_RETURN(const TensorId first, of_operand(linear.node->inputs[0]));
    if (linear.kind == LinearNode::Kind::kMultiple) return add("scale", {first}, linear.node->attrs);
    TSR_ASSIGN_OR_RETURN(const TensorId second, of_operand(linear.node->inputs[1]));
    return add(linear.node->op->name, {first, second});
  }

  // Applies further weights, which all heads share.
  Result<TensorId> towards_latent(TensorId of, TensorId x) {
    if (of == latent_.latent) return x;
    const LinearNode linear = *find_linear(copy_.source(), of);
    if (linear.kind == LinearNode::Kind::kProduct) {
      TSR_ASSIGN_OR_RETURN(const TensorId y, add("matmul", {x, weight(linear)}));
      return towards_latent(linear.node->inputs[0], y);
    }
    return combined(linear, [&](TensorId operand) { return towards_latent(operand, x); });
  }
  Result<TensorId> from_latent(TensorId of, TensorId x) {
    if (of == latent_.latent) return x;
    const LinearNode linear = *find_linear(copy_.source(), of);
    if (linear.kind == LinearNode::Kind::kProduct) {
      TSR_ASSIGN_OR_RETURN(const TensorId y, from_latent(linear.node->inputs[0], x));
      return add("matmul", {y, weight(linear)}, linear.node->attrs);
    }
    return combined(linear, [&](TensorId operand) { return from_latent(operand, x); });
  }

  GraphCopy& copy_;
  const LatentAttention& latent_;
};

// Finds the parts of keys in their concatenation: elements of each head, and those that all heads share, either first.
bool find_keys(const Graph& graph, TensorId keys, TensorId heads, LatentAttention& found) {
  const Node* const join = producer_of(graph, keys, Algebra::kConcatenation);
  if (join == nullptr || join->inputs.size() != 2 || attr_i64(join->attrs, "dim") != kHeadDim) return false;
  const int64_t first = graph.type(join->inputs[0]).shape[3], all = graph.type(keys).shape[3];
  for (const size_t own : {size_t{0}, size_t{1}}) {
    const auto slice = find_head_slice(graph, join->inputs[own]);
    const TensorId shared = find_shared(graph, join->inputs[1 - own]);
    if (!slice || slice->of != heads || shared == kNoTensor) continue;
    found.keys = slice->range;
    found.shared = shared;
    found.own_part = own == 0 ? LatentAttention::Range{0, first} : LatentAttention::Range{first, all};
    found.shared_part = own == 0 ? LatentAttention::Range{first, all} : LatentAttention::Range{0, first};
    found.width = found.rank + found.shared_part.size();
    return true;
  }
  return false;
}

// Adds a part of the attention's queries: an operand of a concatenation of such parts, or a slice.
Result<TensorId> add_query_part(GraphCopy& copy, TensorId queries, const LatentAttention::Range& part) {
  const Graph& source = copy.source();
  if (const Node* const join = producer_of(source, queries, Algebra::kConcatenation);
      join != nullptr && attr_i64(join->attrs, "dim") == kHeadDim) {
    int64_t begin = 0;
    for (const TensorId piece : join->inputs) {
      const int64_t size = source.type(piece).shape[3];
      if (begin == part.begin && size == part.size()) return copy.mapped(piece);
      begin += size;
    }
  }
  return copy.graph().add("slice", {copy.mapped(queries)},
                          {{"dim", kHeadDim}, {"begin", part.begin}, {"end", part.end}});
}

}  // namespace

std::optional<LatentAttention> find_latent_attention(const Graph& graph, const Node& attention) {
  const TensorId q = attention.inputs[0], k = attention.inputs[1], v = attention.inputs[2];
  const auto values = find_head_slice(graph, v);
  LatentAttention found;
  if (!values || !find_product(graph, values->of, found) || !find_keys(graph, k, values->of, found))
    return std::nullopt;
  found.values = values->range;
  const bool has_one_type = graph.type(found.latent).dtype == graph.type(found.shared).dtype;
  const bool has_own_keys = graph.type(q).shape[2] == graph.type(k).shape[2];
  return has_one_type && has_own_keys ? std::optional(found) : std::nullopt;
}

Result<TensorId> add_latent_rows(GraphCopy& copy, const LatentAttention& latent) {
  Graph& graph = copy.graph();
  TSR_ASSIGN_OR_RETURN(
      const TensorId rows,
      graph.add("concat", {copy.mapped(latent.latent), copy.mapped(latent.shared)}, {{"dim", int64_t{2}}}));
  return graph.add("split_dim", {rows}, {{"dim", int64_t{2}}, {"inner", latent.width}});
}

Result<TensorId> add_absorbed_queries(GraphCopy& copy, const LatentAttention& latent, const Node& attention) {
  TSR_ASSIGN_OR_RETURN(const TensorId own, add_query_part(copy, attention.inputs[0], latent.own_part));
  TSR_ASSIGN_OR_RETURN(const TensorId shared, add_query_part(copy, attention.inputs[0], latent.shared_part));
  TSR_ASSIGN_OR_RETURN(const TensorId absorbed, Absorbed(copy, latent).queries(latent.product, own));
  return copy.graph().add("concat", {absorbed, shared}, {{"dim", kHeadDim}});
}

Result<TensorId> add_head_values(GraphCopy& copy, const LatentAttention& latent, TensorId sums) {
  return Absorbed(copy, latent).values(latent.product, sums);
}

}  // namespace tessera

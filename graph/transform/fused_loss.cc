#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/fusion.h"
#include "graph/transform/graph_copy.h"

namespace tessera {

namespace {

// --- a head and the losses of its labels, in the form of add_cross_entropy ---

struct FusedHead {
  TensorId x, w, labels;
  TensorId losses;             // of tokens
  TensorId scale = kNoTensor;  // of their sum, if that is the losses' only reader; else kNoTensor
  TensorId loss = kNoTensor;   // that scaled sum
  int64_t allow_tf32;
};

class HeadFinder {
 public:
  explicit HeadFinder(const Graph& graph) : graph_(graph), readers_(graph.tensors().size(), 0) {
    for (const Node& node : graph.nodes())
      for (const TensorId input : node.inputs) ++readers_[index(input)];
    for (const NamedTensor& output : graph.outputs()) ++readers_[index(output.tensor)];
  }

  Result<FusedHead> find() const {
    Status refused(StatusCode::kUnsupported,
                   "fused loss: the graph has no token loss; add_token_loss makes one");
    for (const Node& node : graph_.nodes()) {
      if (node.op->loss.statistics.empty()) continue;
      auto head = head_of(node);
      if (head.ok()) return with_sum(*head);
      refused = head.status();
    }
    return refused;
  }

 private:
  const Node* producer_of(TensorId tensor) const {
    const NodeId producer = graph_.tensor(tensor).producer;
    return producer != kNoNode ? &graph_.node(producer) : nullptr;
  }
  // Returns whether a loss's statistics, operands 2, 3, ..., are computed from its logits and labels, and each other.
  bool has_own_statistics(const Node& loss) const {
    const std::span<const std::string_view> makers = loss.op->loss.statistics;
    for (size_t i = 0; i < makers.size(); ++i) {
      const Node* maker = producer_of(loss.inputs[2 + i]);
      if (maker == nullptr || maker->op != find_op(makers[i]) || maker->inputs[0] != loss.inputs[0])
        return false;
      const bool are_own = std::ranges::all_of(maker->inputs, [&](TensorId input) {
        return std::ranges::find(loss.inputs, input) != loss.inputs.end();
      });
      if (!are_own) return false;
    }
    return true;
  }
  static Status refuse(std::string_view why) {
    return Status(StatusCode::kUnsupported, format("fused loss: {}", why));
  }

  Result<FusedHead> head_of(const Node& loss) const {
    if (!has_own_statistics(loss)) return refuse("the statistics of the loss are not those of its logits");
    const Node* product = producer_of(loss.inputs[0]);
    if (product == nullptr || product->op->weight.use != WeightUse::kProduct)
      return refuse("the logits are not made by a matmul");
    if (product->inputs.size() != 2) return refuse("the output head has a bias; wanted a head without one");
    if (attr_i64(product->attrs, "trans_w") != 1 || attr_string(product->attrs, "activation") != "none")
      return refuse("the output head is not x w^T with w stored [V, C]");
    return FusedHead{.x = product->inputs[0],
                     .w = product->inputs[1],
                     .labels = loss.inputs[1],
                     .losses = loss.outputs[0],
                     .scale = kNoTensor,
                     .loss = kNoTensor,
                     .allow_tf32 = attr_i64(product->attrs, "allow_tf32")};
  }

  // The head with the scaled sum of its losses, if that is their only reader.
  FusedHead with_sum(FusedHead head) const {
    for (const Node& scaled : graph_.nodes()) {
      if (scaled.op->algebra != Algebra::kScaled) continue;
      const Node* sum = producer_of(scaled.inputs[0]);
      if (sum == nullptr || sum->op->algebra != Algebra::kTotal || sum->inputs[0] != head.losses ||
          readers_[index(head.losses)] != 1 || readers_[index(sum->outputs[0])] != 1 ||
          graph_.type(sum->outputs[0]).shape.rank() != 0)
        continue;
      head.scale = scaled.inputs[1];
      head.loss = scaled.outputs[0];
    }
    return head;
  }

  const Graph& graph_;
  std::vector<int> readers_;
};

// Adds the fused op in place of the head's results.
Status add_fused(GraphCopy& copy, const FusedHead& head) {
  const bool is_sum = head.loss != kNoTensor;
  std::vector<TensorId> operands = {copy.mapped(head.x), copy.mapped(head.w), copy.mapped(head.labels)};
  if (is_sum) operands.push_back(copy.mapped(head.scale));
  TSR_ASSIGN_OR_RETURN(const std::vector<TensorId> results,
                       copy.graph().add_node(is_sum ? "linear_cross_entropy" : "linear_token_losses",
                                             operands, {{"allow_tf32", head.allow_tf32}}));
  return copy.substitute(is_sum ? head.loss : head.losses, results[0]);
}

}  // namespace

Result<Graph> with_fused_loss(const Graph& forward_with_loss) {
  TSR_ASSIGN_OR_RETURN(const FusedHead head, HeadFinder(forward_with_loss).find());
  GraphCopy copy(forward_with_loss);
  const TensorId replaced = head.loss != kNoTensor ? head.loss : head.losses;
  TSR_RETURN_IF_ERROR(copy.copy_range(TensorId{0}, replaced));
  copy.graph().set_scope(forward_with_loss.node(forward_with_loss.tensor(replaced).producer).scope);
  TSR_RETURN_IF_ERROR(add_fused(copy, head));
  copy.graph().set_scope("");
  TSR_RETURN_IF_ERROR(copy.copy_after(replaced));
  return std::move(copy.graph());
}

namespace {

// --- loss and gradient from the same logits ---

// LossPair: a forward node of the loss, its gradient, and
// the nodes that compute the incoming gradient, in order.
struct LossPair {
  NodeId loss, gradient;
  std::vector<NodeId> arriving;
};

// Copies a tensor without a producer; a mapped one stays.
Status copy_source(GraphCopy& copy, TensorId id) {
  return copy.mapped(id) == kNoTensor ? copy.copy_tensor(id) : Status();
}

class PairCopy {
 public:
  explicit PairCopy(const Graph& step) : step_(step), copy_(step) {}

  Result<Graph> run() {
    find_pairs();
    if (pairs_.empty()) return step_;
    for (size_t t = 0; t < step_.tensors().size(); ++t) {
      const TensorId id{static_cast<uint32_t>(t)};
      const Tensor& tensor = step_.tensor(id);
      if (tensor.producer == kNoNode) {
        TSR_RETURN_IF_ERROR(copy_source(copy_, id));
      } else if (tensor.output_index == 0) {
        const auto of_loss = std::ranges::find(pairs_, tensor.producer, &LossPair::loss);
        const bool is_gradient =
            std::ranges::find(pairs_, tensor.producer, &LossPair::gradient) != pairs_.end();
        if (of_loss != pairs_.end()) {
          TSR_RETURN_IF_ERROR(add(*of_loss));
        } else if (!is_gradient) {
          TSR_RETURN_IF_ERROR(copy_.copy_node(tensor.producer));
        }
      }
    }
    TSR_RETURN_IF_ERROR(copy_.copy_results());
    return std::move(copy_.graph());
  }

 private:
  void find_pairs() {
    for (size_t n = 0; n < step_.nodes().size(); ++n) {
      const Node& gradient = step_.nodes()[n];
      if (gradient.op->forward_result < 0 || gradient.forward == kNoNode) continue;
      const Node& loss = step_.node(gradient.forward);
      const size_t shared = loss.inputs.size();
      if (loss.phase != Phase::kForward || gradient.inputs.size() != shared + 1 ||
          !std::ranges::equal(loss.inputs, std::span(gradient.inputs).first(shared)))
        continue;
      LossPair pair{gradient.forward, NodeId{static_cast<uint32_t>(n)}, {}};
      if (find_arriving(gradient.inputs[shared], pair)) pairs_.push_back(std::move(pair));
    }
  }

  // Returns whether operand `i` may be the loss's scale instead: only its type is used, which is the same.
  bool may_be_scale(const Node& node, size_t i, const LossPair& pair) const {
    return std::ranges::find(node.op->shape_only, static_cast<int>(i)) != node.op->shape_only.end() &&
           step_.type(node.inputs[i]) == step_.type(step_.node(pair.loss).inputs.back());
  }

  // Collects the nodes that compute `tensor`, all scalar; false where one needs the loss.
  bool find_arriving(TensorId tensor, LossPair& pair) const {
    const NodeId producer = step_.tensor(tensor).producer;
    if (producer == kNoNode || index(producer) < index(pair.loss)) return true;
    if (producer == pair.loss || step_.type(tensor).shape.rank() != 0) return false;
    if (std::ranges::find(pair.arriving, producer) != pair.arriving.end()) return true;
    const Node& node = step_.node(producer);
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (!may_be_scale(node, i, pair) && !find_arriving(node.inputs[i], pair)) return false;
    pair.arriving.push_back(producer);
    return true;
  }

  // Adds the nodes of the incoming gradient a second time:
  // other gradients use them too, in the backward phase.
  Status add(const LossPair& pair) {
    const Node &loss = step_.node(pair.loss), &gradient = step_.node(pair.gradient);
    Graph& graph = copy_.graph();
    std::map<TensorId, TensorId> made;
    const auto now = [&](TensorId old) -> Result<TensorId> {
      if (const auto found = made.find(old); found != made.end()) return found->second;
      if (step_.tensor(old).producer == kNoNode) TSR_RETURN_IF_ERROR(copy_source(copy_, old));
      return copy_.mapped(old);
    };
    graph.set_scope(loss.scope);
    for (const NodeId id : pair.arriving) {
      const Node& node = step_.node(id);
      std::vector<TensorId> inputs;
      for (size_t i = 0; i < node.inputs.size(); ++i) {
        TSR_ASSIGN_OR_RETURN(const TensorId input,
                             now(may_be_scale(node, i, pair) ? loss.inputs.back() : node.inputs[i]));
        inputs.push_back(input);
      }
      TSR_ASSIGN_OR_RETURN(const auto outputs, graph.add_node(node.op->name, inputs, node.attrs));
      for (size_t o = 0; o < outputs.size(); ++o) made[node.outputs[o]] = outputs[o];
    }
    std::vector<TensorId> inputs;
    for (const TensorId input : gradient.inputs) {
      TSR_ASSIGN_OR_RETURN(const TensorId mapped, now(input));
      inputs.push_back(mapped);
    }
    TSR_ASSIGN_OR_RETURN(const auto results, graph.add_node(gradient.op->name, inputs, gradient.attrs));
    const NodeId both{static_cast<uint32_t>(graph.nodes().size() - 1)};
    graph.set_scope("");
    copy_.replace_node(pair.loss, both);
    copy_.replace_node(pair.gradient, both);
    for (size_t o = 0; o < results.size(); ++o)
      TSR_RETURN_IF_ERROR(copy_.substitute(gradient.outputs[o], results[o]));
    return copy_.substitute(loss.outputs[0], results[static_cast<size_t>(gradient.op->forward_result)]);
  }

  const Graph& step_;
  GraphCopy copy_;
  std::vector<LossPair> pairs_;
};

}  // namespace

Result<Graph> with_fused_loss_gradient(const Graph& step) { return PairCopy(step).run(); }

}  // namespace tessera

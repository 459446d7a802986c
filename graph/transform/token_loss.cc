#include "graph/transform/token_loss.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/transform/adapter_slots.h"
#include "graph/transform/graph_copy.h"
#include "graph/transform/language_model.h"

namespace tessera {

namespace {

constexpr std::pair<TokenLoss, std::string_view> kNames[] = {
    {TokenLoss::kCrossEntropy, "cross_entropy"},
    {TokenLoss::kImportanceSampling, "importance_sampling"},
    {TokenLoss::kPpo, "ppo"},
    {TokenLoss::kCispo, "cispo"},
    {TokenLoss::kDro, "dro"},
    {TokenLoss::kGspo, "gspo"},
    {TokenLoss::kGradient, "gradient"},
};
constexpr TokenLoss kAll[] = {TokenLoss::kCrossEntropy, TokenLoss::kImportanceSampling,
                              TokenLoss::kPpo,          TokenLoss::kCispo,
                              TokenLoss::kDro,          TokenLoss::kGspo,
                              TokenLoss::kGradient};

constexpr std::string_view kConstantInput = "loss.constant.input";

class LossBuilder {
 public:
  // `logprobs` [B, T], in the type of all added inputs.
  LossBuilder(Graph& graph, TensorId logprobs) : graph_(graph), p_(logprobs) {}

  // The losses of tokens.
  Result<TensorId> add(TokenLoss loss) {
    switch (loss) {
      case TokenLoss::kCrossEntropy: return add_weighted("weights", -1);
      case TokenLoss::kGradient: return add_weighted("gradients", 1);
      case TokenLoss::kImportanceSampling: return add_importance_sampling();
      case TokenLoss::kPpo: return add_ppo();
      case TokenLoss::kCispo: return add_cispo();
      case TokenLoss::kDro: return add_dro();
      case TokenLoss::kGspo: return add_gspo();
    }
    return Status(StatusCode::kInternal, "a loss that does not exist");
  }
  Result<TensorId> scalar(std::string_view name) {
    return graph_.add_tensor(std::string(name), {graph_.type(p_).dtype, {}}, TensorKind::kInput);
  }

 private:
  Result<TensorId> input(std::string_view name) {
    return graph_.add_tensor(std::string(name), graph_.type(p_), TensorKind::kInput);
  }
  Result<TensorId> add_weighted(std::string_view factor, int sign) {
    TSR_ASSIGN_OR_RETURN(const TensorId weights, input(factor));
    if (sign > 0) return graph_.add("mul", {p_, weights});
    TSR_ASSIGN_OR_RETURN(const TensorId loss, graph_.add("neg", {p_}));
    return graph_.add("mul", {loss, weights});
  }
  // p - q, and the advantages.
  Result<TensorId> add_log_ratio() {
    TSR_ASSIGN_OR_RETURN(const TensorId sampler, input("sampler_logprobs"));
    TSR_ASSIGN_OR_RETURN(advantages_, input("advantages"));
    return graph_.add("sub", {p_, sampler});
  }
  Status add_ratio() {
    TSR_ASSIGN_OR_RETURN(const TensorId difference, add_log_ratio());
    TSR_ASSIGN_OR_RETURN(ratio_, graph_.add("exp", {difference}));
    return {};
  }
  Result<TensorId> spread(std::string_view name) {
    TSR_ASSIGN_OR_RETURN(const TensorId value, scalar(name));
    std::vector<int64_t> axes;
    for (int dim = 0; dim < graph_.type(p_).shape.rank(); ++dim) axes.push_back(dim);
    return graph_.add("broadcast", {value, p_}, {{"axes", axes}});
  }
  // min(x, y) = y - relu(y - x): its error is one of y; its gradient is exact, y's for equal values.
  Result<TensorId> minimum(TensorId x, TensorId y) {
    TSR_ASSIGN_OR_RETURN(const TensorId above, graph_.add("sub", {y, x}));
    TSR_ASSIGN_OR_RETURN(const TensorId excess, graph_.add("relu", {above}));
    return graph_.add("sub", {y, excess});
  }
  Result<TensorId> clipped_ratio() {
    TSR_ASSIGN_OR_RETURN(const TensorId low, spread("clip_low"));
    TSR_ASSIGN_OR_RETURN(const TensorId high, spread("clip_high"));
    TSR_ASSIGN_OR_RETURN(const TensorId above, graph_.add("sub", {ratio_, low}));
    TSR_ASSIGN_OR_RETURN(const TensorId excess, graph_.add("relu", {above}));
    TSR_ASSIGN_OR_RETURN(const TensorId at_least, graph_.add("add", {excess, low}));
    return minimum(at_least, high);
  }
  Result<TensorId> add_importance_sampling() {
    TSR_RETURN_IF_ERROR(add_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId gain, graph_.add("mul", {ratio_, advantages_}));
    return graph_.add("neg", {gain});
  }
  Result<TensorId> add_ppo() {
    TSR_RETURN_IF_ERROR(add_ratio());
    return add_clipped_gain();
  }
  Result<TensorId> add_clipped_gain() {
    TSR_ASSIGN_OR_RETURN(const TensorId clipped, clipped_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId gain, graph_.add("mul", {ratio_, advantages_}));
    TSR_ASSIGN_OR_RETURN(const TensorId bounded, graph_.add("mul", {clipped, advantages_}));
    TSR_ASSIGN_OR_RETURN(const TensorId least, minimum(gain, bounded));
    return graph_.add("neg", {least});
  }
  Result<TensorId> add_cispo() {
    TSR_RETURN_IF_ERROR(add_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId clipped, clipped_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId weight, graph_.add("mul", {clipped, advantages_}));
    TSR_RETURN_IF_ERROR(graph_.rename(weight, std::string(kConstantOfLoss)));
    TSR_ASSIGN_OR_RETURN(const TensorId gain, graph_.add("mul", {p_, weight}));
    return graph_.add("neg", {gain});
  }
  Result<TensorId> add_dro() {
    TSR_ASSIGN_OR_RETURN(const TensorId difference, add_log_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId gain, graph_.add("mul", {p_, advantages_}));
    TSR_ASSIGN_OR_RETURN(const TensorId beta, spread("dro_beta"));
    TSR_ASSIGN_OR_RETURN(const TensorId square, graph_.add("square", {difference}));
    TSR_ASSIGN_OR_RETURN(const TensorId twice, graph_.add("mul", {square, beta}));
    TSR_ASSIGN_OR_RETURN(const TensorId penalty, graph_.add("scale", {twice}, {{"factor", 0.5}}));
    return graph_.add("sub", {penalty, gain});
  }
  // The sum over the document of each token.
  Result<TensorId> document_sums(TensorId values) {
    if (const auto segments = graph_.find_tensor("segments"))
      return graph_.add("segment_sum", {values, *segments});
    const std::vector<int64_t> tokens = {graph_.type(values).shape.rank() - 1};
    TSR_ASSIGN_OR_RETURN(const TensorId sums, graph_.add("reduce_sum", {values}, {{"axes", tokens}}));
    return graph_.add("broadcast", {sums, values}, {{"axes", tokens}});
  }
  Result<TensorId> add_gspo() {
    TSR_ASSIGN_OR_RETURN(const TensorId difference, add_log_ratio());
    TSR_ASSIGN_OR_RETURN(const TensorId weights, input("mean_weights"));
    TSR_ASSIGN_OR_RETURN(const TensorId weighted, graph_.add("mul", {difference, weights}));
    TSR_ASSIGN_OR_RETURN(const TensorId mean, document_sums(weighted));
    TSR_ASSIGN_OR_RETURN(const TensorId offset, graph_.add("sub", {mean, p_}));
    TSR_RETURN_IF_ERROR(graph_.rename(offset, std::string(kConstantOfLoss)));
    TSR_ASSIGN_OR_RETURN(const TensorId log_ratio, graph_.add("add", {offset, p_}));
    TSR_ASSIGN_OR_RETURN(ratio_, graph_.add("exp", {log_ratio}));
    return add_clipped_gain();
  }

  Graph& graph_;
  const TensorId p_;
  TensorId ratio_ = kNoTensor, advantages_ = kNoTensor;
};

// The sum of the rows' losses, each times the row's own scale: rows may be of different adapters.
Result<TensorId> add_row_losses(Graph& graph, TensorId losses) {
  const TensorType& type = graph.type(losses);
  TSR_ASSIGN_OR_RETURN(const TensorId scale, graph.add_tensor(std::string(kRowScale), {type.dtype, {type.shape[0]}},
                                                               TensorKind::kInput));
  const std::vector<int64_t> tokens = {1}, rows = {0};
  TSR_ASSIGN_OR_RETURN(const TensorId everywhere, graph.add("broadcast", {scale, losses}, {{"axes", tokens}}));
  TSR_ASSIGN_OR_RETURN(const TensorId scaled, graph.add("mul", {losses, everywhere}));
  TSR_ASSIGN_OR_RETURN(const TensorId sums, graph.add("reduce_sum", {scaled}, {{"axes", tokens}}));
  TSR_RETURN_IF_ERROR(graph.add_output(std::string(kRowLosses), sums));
  return graph.add("reduce_sum", {sums}, {{"axes", rows}});
}

}  // namespace

std::string_view name_of(TokenLoss loss) {
  return std::ranges::find(kNames, loss, &std::pair<TokenLoss, std::string_view>::first)->second;
}

std::optional<TokenLoss> token_loss_from_name(std::string_view name) {
  const auto at = std::ranges::find(kNames, name, &std::pair<TokenLoss, std::string_view>::second);
  return at == std::end(kNames) ? std::nullopt : std::optional(at->first);
}

std::span<const TokenLoss> all_token_losses() { return kAll; }

bool has_ratio(TokenLoss loss) { return loss != TokenLoss::kCrossEntropy && loss != TokenLoss::kGradient; }

bool has_clipping(TokenLoss loss) {
  return loss == TokenLoss::kPpo || loss == TokenLoss::kCispo || loss == TokenLoss::kGspo;
}

Result<CrossEntropy> add_cross_entropy(Graph& graph, TensorId logits, TensorId labels) {
  CrossEntropy made;
  TSR_ASSIGN_OR_RETURN(made.max, graph.add("row_max", {logits}));
  TSR_ASSIGN_OR_RETURN(const TensorId sum, graph.add("row_sum_exp", {logits, made.max}));
  TSR_ASSIGN_OR_RETURN(made.picked, graph.add("pick", {logits, labels}));
  TSR_ASSIGN_OR_RETURN(made.losses, graph.add("cross_entropy", {logits, labels, made.max, sum, made.picked}));
  return made;
}

Result<TensorId> add_label_logprobs(Graph& graph, std::string_view loss) {
  const auto logits = graph.find_output("logits");
  if (!logits || graph.type(*logits).shape.rank() != 3)
    return Status(StatusCode::kFailedPrecondition,
                  format("the graph has no output \"logits\" [B, T, V] to make the loss '{}' from{}", loss,
                         missing_logits(graph)));
  const Shape tokens(graph.type(*logits).shape.dims().first(2));
  TSR_ASSIGN_OR_RETURN(const TensorId labels,
                       graph.add_tensor("labels", {DType::kI32, tokens}, TensorKind::kInput));
  TSR_ASSIGN_OR_RETURN(const CrossEntropy entropy, add_cross_entropy(graph, *logits, labels));
  return graph.add("neg", {entropy.losses});
}

Status add_accumulated_loss(Graph& graph, TokenLoss loss) {
  graph.set_scope("loss");
  TSR_ASSIGN_OR_RETURN(const TensorId logprobs, add_label_logprobs(graph, name_of(loss)));
  LossBuilder builder(graph, logprobs);
  TSR_ASSIGN_OR_RETURN(const TensorId losses, builder.add(loss));
  TSR_ASSIGN_OR_RETURN(const TensorId total, has_adapter_slots(graph) ? add_row_losses(graph, losses)
                                                                      : graph.add("reduce_sum", {losses}, {{"axes", std::vector<int64_t>{0, 1}}}));
  TSR_ASSIGN_OR_RETURN(const TensorId scale, builder.scalar("loss_scale"));
  TSR_ASSIGN_OR_RETURN(TensorId whole, graph.add("scale_by", {total, scale}));
  if (const auto auxiliary = graph.find_output("aux_loss")) {
    TSR_ASSIGN_OR_RETURN(const TensorId aux_scale, builder.scalar("aux_scale"));
    TSR_ASSIGN_OR_RETURN(const TensorId scaled, graph.add("scale_by", {*auxiliary, aux_scale}));
    TSR_ASSIGN_OR_RETURN(whole, graph.add("add", {whole, scaled}));
  }
  graph.set_scope("");
  TSR_RETURN_IF_ERROR(graph.add_output(std::string(kLogprobs), logprobs));
  return graph.add_output("loss", whole);
}

Result<Graph> with_constant_as_input(const Graph& graph) {
  const auto constant = graph.find_tensor(kConstantOfLoss);
  if (!constant) return graph;
  GraphCopy copy(graph);
  TSR_RETURN_IF_ERROR(copy.copy_range(TensorId{0}, TensorId{static_cast<uint32_t>(index(*constant) + 1)}));
  TSR_ASSIGN_OR_RETURN(
      const TensorId input,
      copy.graph().add_tensor(std::string(kConstantInput), graph.type(*constant), TensorKind::kInput));
  copy.replace(*constant, input);
  TSR_RETURN_IF_ERROR(copy.copy_after(*constant));
  return std::move(copy.graph());
}

Result<Graph> with_constant_computed(const Graph& graph) {
  const auto input = graph.find_tensor(kConstantInput), constant = graph.find_tensor(kConstantOfLoss);
  if (!input || !constant) return graph;
  GraphCopy copy(graph);
  TSR_RETURN_IF_ERROR(copy.copy_range(TensorId{0}, *input));
  copy.replace(*input, copy.mapped(*constant));
  TSR_RETURN_IF_ERROR(copy.copy_after(*input));
  return std::move(copy.graph());
}

}  // namespace tessera

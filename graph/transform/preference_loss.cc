#include "graph/transform/preference_loss.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "graph/transform/token_loss.h"

namespace tessera {
namespace {

constexpr std::pair<PreferenceLoss, std::string_view> kPreferenceNames[] = {
    {PreferenceLoss::kDpo, "dpo"},       {PreferenceLoss::kIpo, "ipo"},   {PreferenceLoss::kHinge, "hinge"},
    {PreferenceLoss::kRobust, "robust"}, {PreferenceLoss::kOrpo, "orpo"}, {PreferenceLoss::kKto, "kto"},
    {PreferenceLoss::kSimpo, "simpo"},   {PreferenceLoss::kCpo, "cpo"},
};

class PreferenceBuilder {
 public:
  // `logprobs` [B, T], in the type of all added inputs.
  PreferenceBuilder(Graph& graph, TensorId logprobs, const PreferenceOptions& options)
      : graph_(graph), p_(logprobs), options_(options) {}

  // Adds the loss of the batch, [].
  Result<TensorId> add() {
    TSR_ASSIGN_OR_RETURN(chosen_, add_answer("chosen_weights", kChosenLogprobs));
    if (is_paired(options_.loss)) {
      TSR_ASSIGN_OR_RETURN(rejected_, add_answer("rejected_weights", kRejectedLogprobs));
    }
    TSR_ASSIGN_OR_RETURN(const TensorId rows, add_rows());
    TSR_ASSIGN_OR_RETURN(const TensorId weights, row_input("row_weights"));
    TSR_ASSIGN_OR_RETURN(const TensorId weighted, graph_.add("mul", {rows, weights}));
    TSR_ASSIGN_OR_RETURN(const TensorId loss,
                         graph_.add("reduce_sum", {weighted}, {{"axes", std::vector<int64_t>{0}}}));
    if (!has_token_loss(options_.loss)) return loss;
    TSR_ASSIGN_OR_RETURN(const TensorId tokens, sum_of("token_weights", {0, 1}));
    return graph_.add("sub", {loss, tokens});
  }

 private:
  Result<TensorId> input(std::string_view name, Shape shape) {
    return graph_.add_tensor(std::string(name), {graph_.type(p_).dtype, std::move(shape)},
                             TensorKind::kInput);
  }
  Result<TensorId> row_input(std::string_view name) { return input(name, Shape{graph_.type(p_).shape[0]}); }
  // Sums log probabilities times the input `weights`.
  Result<TensorId> sum_of(std::string_view weights, std::vector<int64_t> axes) {
    TSR_ASSIGN_OR_RETURN(const TensorId given, input(weights, graph_.type(p_).shape));
    TSR_ASSIGN_OR_RETURN(const TensorId weighted, graph_.add("mul", {p_, given}));
    return graph_.add("reduce_sum", {weighted}, {{"axes", std::move(axes)}});
  }
  Result<TensorId> add_answer(std::string_view weights, std::string_view name) {
    TSR_ASSIGN_OR_RETURN(const TensorId sum, sum_of(weights, {1}));
    TSR_RETURN_IF_ERROR(graph_.rename(sum, "loss." + std::string(name)));
    TSR_RETURN_IF_ERROR(graph_.add_output(std::string(name), sum));
    return sum;
  }
  Result<TensorId> scaled(TensorId x, double factor) {
    return graph_.add("scale", {x}, {{"factor", factor}});
  }
  // -log sigmoid(x)
  Result<TensorId> negative_log_sigmoid(TensorId x) {
    TSR_ASSIGN_OR_RETURN(const TensorId negative, graph_.add("neg", {x}));
    return graph_.add("softplus", {negative});
  }
  // -(1 - e) log sigmoid(x) - e log sigmoid(-x), times `factor`; kRobust subtracts the second.
  Result<TensorId> smoothed(TensorId x, double flipped, double factor) {
    TSR_ASSIGN_OR_RETURN(const TensorId right, negative_log_sigmoid(x));
    const double e = options_.label_smoothing;
    if (e == 0) return factor == 1 ? Result<TensorId>(right) : scaled(right, factor);
    TSR_ASSIGN_OR_RETURN(const TensorId wrong, graph_.add("softplus", {x}));
    TSR_ASSIGN_OR_RETURN(const TensorId first, scaled(right, (1 - e) * factor));
    TSR_ASSIGN_OR_RETURN(const TensorId second, scaled(wrong, flipped * e * factor));
    return graph_.add("add", {first, second});
  }
  // c - r, for kKto c, less the offset.
  Result<TensorId> difference() {
    TensorId own = chosen_;
    if (is_paired(options_.loss)) {
      TSR_ASSIGN_OR_RETURN(own, graph_.add("sub", {chosen_, rejected_}));
    }
    if (!has_offset(options_.loss)) return own;
    TSR_ASSIGN_OR_RETURN(const TensorId offset, row_input("offset"));
    return graph_.add("sub", {own, offset});
  }
  // log(p / (1 - p)), p = exp(x)
  Result<TensorId> log_odds(TensorId x) {
    TSR_ASSIGN_OR_RETURN(const TensorId other, graph_.add("log1mexp", {x}));
    return graph_.add("sub", {x, other});
  }
  Result<TensorId> add_orpo() {
    TSR_ASSIGN_OR_RETURN(const TensorId chosen, log_odds(chosen_));
    TSR_ASSIGN_OR_RETURN(const TensorId rejected, log_odds(rejected_));
    TSR_ASSIGN_OR_RETURN(const TensorId ratio, graph_.add("sub", {chosen, rejected}));
    TSR_ASSIGN_OR_RETURN(const TensorId loss, negative_log_sigmoid(ratio));
    return scaled(loss, options_.beta);
  }
  Result<TensorId> add_kto() {
    TSR_ASSIGN_OR_RETURN(const TensorId sign, row_input("sign"));
    TSR_ASSIGN_OR_RETURN(const TensorId reward, difference());
    TSR_ASSIGN_OR_RETURN(const TensorId wanted, graph_.add("mul", {reward, sign}));
    TSR_ASSIGN_OR_RETURN(const TensorId x, scaled(wanted, -options_.beta));
    return graph_.add("sigmoid", {x});
  }
  // Adds the losses of rows, [B].
  Result<TensorId> add_rows() {
    if (options_.loss == PreferenceLoss::kKto) return add_kto();
    if (options_.loss == PreferenceLoss::kOrpo) return add_orpo();
    TSR_ASSIGN_OR_RETURN(const TensorId delta, difference());
    if (options_.loss == PreferenceLoss::kIpo) return graph_.add("square", {delta});
    const bool is_hinge = options_.loss == PreferenceLoss::kHinge;
    TSR_ASSIGN_OR_RETURN(const TensorId x, scaled(delta, is_hinge ? -options_.beta : options_.beta));
    if (is_hinge) return graph_.add("relu", {x});
    if (options_.loss == PreferenceLoss::kRobust)
      return smoothed(x, -1, 1 / (1 - 2 * options_.label_smoothing));
    return smoothed(x, 1, 1);
  }

  Graph& graph_;
  const TensorId p_;
  const PreferenceOptions& options_;
  TensorId chosen_ = kNoTensor, rejected_ = kNoTensor;
};

}  // namespace

std::string_view name_of(PreferenceLoss loss) {
  return std::ranges::find(kPreferenceNames, loss, &std::pair<PreferenceLoss, std::string_view>::first)
      ->second;
}

std::optional<PreferenceLoss> preference_loss_from_name(std::string_view name) {
  const auto at =
      std::ranges::find(kPreferenceNames, name, &std::pair<PreferenceLoss, std::string_view>::second);
  return at == std::end(kPreferenceNames) ? std::nullopt : std::optional(at->first);
}

bool is_paired(PreferenceLoss loss) { return loss != PreferenceLoss::kKto; }

bool has_reference(PreferenceLoss loss) {
  using enum PreferenceLoss;
  return loss == kDpo || loss == kIpo || loss == kHinge || loss == kRobust || loss == kKto;
}

bool has_token_loss(PreferenceLoss loss) {
  return loss == PreferenceLoss::kOrpo || loss == PreferenceLoss::kCpo;
}

bool reads_means(PreferenceLoss loss) {
  using enum PreferenceLoss;
  return loss == kIpo || loss == kOrpo || loss == kSimpo;
}

bool has_offset(PreferenceLoss loss) { return has_reference(loss) || loss == PreferenceLoss::kSimpo; }

double offset_of(const PreferenceOptions& options, double reference) {
  switch (options.loss) {
    case PreferenceLoss::kIpo: return reference + 1 / (2 * options.beta);
    case PreferenceLoss::kHinge: return reference + 1 / options.beta;
    case PreferenceLoss::kSimpo: return options.simpo_gamma / options.beta;
    case PreferenceLoss::kOrpo:
    case PreferenceLoss::kCpo: return 0;
    default: return reference;
  }
}

Status add_preference_loss(Graph& graph, const PreferenceOptions& options) {
  graph.set_scope("loss");
  TSR_ASSIGN_OR_RETURN(const TensorId logprobs, add_label_logprobs(graph, name_of(options.loss)));
  TSR_ASSIGN_OR_RETURN(const TensorId loss, PreferenceBuilder(graph, logprobs, options).add());
  const auto auxiliary = graph.find_output("aux_loss");
  TensorId whole = loss;
  if (auxiliary) {
    TSR_ASSIGN_OR_RETURN(whole, graph.add("add", {loss, *auxiliary}));
  }
  graph.set_scope("");
  TSR_RETURN_IF_ERROR(graph.add_output("loss", whole));
  return auxiliary ? graph.add_output("token_loss", loss) : Status();
}

}  // namespace tessera

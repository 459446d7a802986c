// Losses of accumulations (graph/transform/training.h): functions of the log probabilities of labels, token by token.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// The name of the output with the log probability of each label, 0 where the label is ignored: [B, T].
inline constexpr std::string_view kLogprobs = "logprobs";
// The name of a tensor that differentiation takes as a constant.
inline constexpr std::string_view kConstantOfLoss = "loss.constant";

// With p the log probability of a label, q input "sampler_logprobs", A input "advantages", r = exp(p - q), and
// clip(r) = min(max(r, clip_low), clip_high), inputs "clip_low" and "clip_high" []; all other inputs are [B, T]:
enum class TokenLoss : uint8_t {
  kCrossEntropy,        // -sum w p, w input "weights"
  kImportanceSampling,  // -sum r A
  kPpo,                 // -sum min(r A, clip(r) A)
  kCispo,               // -sum clip(r) A p, with clip(r) A a constant
  // Direct reward optimization (Richemond et al., 2024, arXiv:2405.19107; by token as Tinker documents it):
  // -sum (A p - beta / 2 (p - q)^2), input "dro_beta" []
  kDro,
  // GSPO-token (Zheng et al., Group Sequence Policy Optimization, 2025, arXiv:2507.18071, equation 13; summed as Tinker
  // documents it): kPpo with r = exp(c + p), c the constant (sum w (p - q)) - p, w input "mean_weights", summed over the
  // token's document: the value of the whole document's ratio, and the gradient of the token's own. Documents are those
  // of input "segments", or rows where the graph has none.
  kGspo,
  kGradient,  // sum g p, g input "gradients": the caller's gradient
};
std::string_view name_of(TokenLoss loss);  // "cross_entropy", "importance_sampling", "ppo", ...
std::optional<TokenLoss> token_loss_from_name(std::string_view name);
std::span<const TokenLoss> all_token_losses();
bool has_ratio(TokenLoss loss);     // compares p to q, and weighs tokens by A
bool has_clipping(TokenLoss loss);  // reads clip_low and clip_high

// Appends the loss to a language model: input "labels" i32[B, T] (-1: ignored), the
// loss's own inputs, and "loss_scale" [], the factor on the sum over tokens. Outputs
// "loss" and kLogprobs. A model's "aux_loss" is added, times input "aux_scale" [].
Status add_accumulated_loss(Graph& graph, TokenLoss loss);

// Minus the log probability of each label, in phases that a split vocabulary admits: the
// largest logit and the label's, read by cross_entropy (graph/ops/cross_entropy.cc).
struct CrossEntropy {
  TensorId losses = kNoTensor, max = kNoTensor, picked = kNoTensor;
};
Result<CrossEntropy> add_cross_entropy(Graph& graph, TensorId logits, TensorId labels);

// Adds the log probability of each label of a language model, 0 where the label is
// ignored, [B, T], with input "labels" i32[B, T]. `loss`: their use, for errors.
Result<TensorId> add_label_logprobs(Graph& graph, std::string_view loss);

// The graph in which kConstantOfLoss is read as an input, and the inverse,
// for a differentiated graph. Graphs without that tensor stay as they are.
Result<Graph> with_constant_as_input(const Graph& graph);
Result<Graph> with_constant_computed(const Graph& graph);

}  // namespace tessera

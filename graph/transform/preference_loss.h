// Losses of preferences: functions of the log probabilities of whole answers. A row of a batch holds both answers to a
// prompt, as two documents that attention keeps apart, or the one answer of kKto: no loss reads two rows, so that data
// parallelism and micro-batches divide it as they do a token loss.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// With c and r the log probabilities of the chosen and the rejected answer, C and R those of the reference, s = sigmoid:
enum class PreferenceLoss : uint8_t {
  kDpo,  // -(1 - e) log s(x) - e log s(-x), x = beta ((c - C) - (r - R)), e label_smoothing  (arXiv:2305.18290)
  kIpo,     // ((c - C) - (r - R) - 1 / (2 beta))^2, of means over tokens  (arXiv:2310.12036)
  kHinge,   // max(0, 1 - x)  (arXiv:2305.10425)
  kRobust,  // (-(1 - e) log s(x) + e log s(-x)) / (1 - 2 e)  (arXiv:2403.00409)
  kOrpo,   // -beta log s(log(odds(c) / odds(r))) + the chosen text's token loss, of means  (arXiv:2403.07691)
  kKto,    // s(-beta (c - C - z)) if wanted, s(beta (c - C - z)) if not; z of the batch  (arXiv:2402.01306)
  kSimpo,  // as kDpo with x = beta (c - r) - gamma, of means  (arXiv:2405.14734)
  kCpo,    // as kDpo with x = beta (c - r), + alpha times the chosen answer's token loss  (arXiv:2401.08417)
};
std::string_view name_of(PreferenceLoss loss);  // "dpo"
std::optional<PreferenceLoss> preference_loss_from_name(std::string_view name);

bool is_paired(PreferenceLoss loss);       // rows hold two answers
bool has_reference(PreferenceLoss loss);   // reads log probabilities of a reference
bool has_token_loss(PreferenceLoss loss);  // adds the token loss of chosen texts
bool reads_means(PreferenceLoss loss);     // log probabilities are means over tokens, else sums

struct PreferenceOptions {
  PreferenceLoss loss = PreferenceLoss::kDpo;
  double beta = 0.1;
  double label_smoothing = 0;  // share of pairs whose labels are wrong: kDpo, kRobust, kSimpo, kCpo
  double simpo_gamma = 0.5;
  double cpo_alpha = 1;
  double desirable_weight = 1, undesirable_weight = 1;  // of kKto
};

// The names of the outputs with c and r, [B].
inline constexpr std::string_view kChosenLogprobs = "chosen_logprobs";
inline constexpr std::string_view kRejectedLogprobs = "rejected_logprobs";

// The value of the input "offset", from which c - r is measured: the reference's C - R and the loss's own term,
// so that x of kDpo is beta (c - r - offset). kKto measures c from C + z. 0 for a loss without such an input.
double offset_of(const PreferenceOptions& options, double reference);
bool has_offset(PreferenceLoss loss);

// Appends the loss to a language model. Inputs: "labels" i32[B, T] (-1: ignored); "chosen_weights" and, of
// pairs, "rejected_weights" [B, T], the weight of each label's log probability in c and r; "row_weights"
// [B], the share of each row in the loss; "offset" [B]; of kKto "sign" [B], 1 of wanted answers, else -1;
// with a token loss "token_weights" [B, T], the share of each label in it. Outputs "loss", and those above.
// A model's "aux_loss" is added to "loss", which without it then is output "token_loss", as in training.h.
Status add_preference_loss(Graph& graph, const PreferenceOptions& options);

}  // namespace tessera

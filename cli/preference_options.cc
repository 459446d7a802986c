#include "preference_options.h"

#include <cstdio>

namespace cli {

void add_loss_options(CLI::App& command, LossOptions& losses) {
  command.add_option(
      "--loss", losses.loss,
      "cross_entropy (default); for preference rows dpo, ipo, hinge, robust, orpo, simpo or cpo; for unpaired rows "
      "kto");
  command.add_option("--beta", losses.beta, "beta of preference losses (default 0.1)");
  command.add_option(
      "--label-smoothing", losses.label_smoothing,
      "dpo, robust, simpo, cpo: fraction of pairs with swapped labels (default 0)");
  command.add_option("--simpo-gamma", losses.simpo_gamma, "simpo: margin (default 0.5)");
  command.add_option("--cpo-alpha", losses.cpo_alpha,
                     "cpo: weight of the chosen answers' token loss (default 1)");
  command.add_option("--desirable-weight", losses.desirable_weight, "kto: weight of wanted answers (default 1)");
  command.add_option("--undesirable-weight", losses.undesirable_weight,
                     "kto: weight of unwanted answers (default 1)");
  command.add_option(
      "--reference", losses.reference,
      "dpo, ipo, hinge, robust, kto: reference model, with the same vocabulary (default: the given model without its "
      "adapters)");
}

void set_loss(Options& options, const LossOptions& losses) {
  set(options, "loss", losses.loss);
  set(options, "beta", losses.beta);
  set(options, "label_smoothing", losses.label_smoothing);
  set(options, "simpo_gamma", losses.simpo_gamma);
  set(options, "cpo_alpha", losses.cpo_alpha);
  set(options, "desirable_weight", losses.desirable_weight);
  set(options, "undesirable_weight", losses.undesirable_weight);
  set(options, "reference", losses.reference);
}

std::string rewards_text(double chosen, double rejected, double margin, double accuracy) {
  char text[160];
  std::snprintf(text, sizeof text, "chosen %.3g  rejected %.3g  margin %.3g  accuracy %.2f", chosen, rejected,
                margin, accuracy);
  return text;
}

std::string rewards_text(const Json& rewards) {
  const auto value = [&](const char* key) { return rewards[key].get<double>(); };
  return rewards_text(value("chosen_reward"), value("rejected_reward"), value("reward_margin"),
                      value("reward_accuracy"));
}

}  // namespace cli

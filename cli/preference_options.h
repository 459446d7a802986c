// Options of preference losses, shared by `train`, `eval` and `plan`.
#pragma once

#include <optional>
#include <string>

#include "command.h"

namespace cli {

struct LossOptions {
  // Absent: the library's default.
  std::optional<std::string> loss, reference;
  std::optional<double> beta, label_smoothing, simpo_gamma, cpo_alpha, desirable_weight, undesirable_weight;
};

void add_loss_options(CLI::App& command, LossOptions& losses);
void set_loss(Options& options, const LossOptions& losses);

// "chosen 0.12  rejected -0.30  margin 0.42  accuracy 0.88"; of JSON with the keys chosen_reward, ...
std::string rewards_text(double chosen, double rejected, double margin, double accuracy);
std::string rewards_text(const Json& rewards);

}  // namespace cli

// Options of preference losses.
#include <algorithm>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/settings/trainer_settings.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

constexpr const char* kTokenLossName = "cross_entropy";

// LossOption: an option, and the losses that use it.
struct LossOption {
  std::string_view name;
  std::vector<PreferenceLoss> losses;
};

std::vector<LossOption> loss_options() {
  using enum PreferenceLoss;
  return {{"beta", {kDpo, kIpo, kHinge, kRobust, kOrpo, kKto, kSimpo, kCpo}},
          {"label_smoothing", {kDpo, kRobust, kSimpo, kCpo}},
          {"simpo_gamma", {kSimpo}},
          {"cpo_alpha", {kCpo}},
          {"desirable_weight", {kKto}},
          {"undesirable_weight", {kKto}},
          {"reference", {kDpo, kIpo, kHinge, kRobust, kKto}}};
}

// Refuses an option that the loss does not use.
Status check_meaning(const OptionReader& reader, const std::string& name,
                     std::optional<PreferenceLoss> loss) {
  for (const LossOption& option : loss_options()) {
    if (!reader.has(option.name) || (loss && std::ranges::find(option.losses, *loss) != option.losses.end()))
      continue;
    std::vector<std::string> names;
    for (const PreferenceLoss it : option.losses) names.emplace_back(name_of(it));
    return Status(StatusCode::kInvalidArgument,
                  format("trainer: option '{}' means nothing to loss '{}': wanted option loss {}",
                         option.name, name, join(names, ", ")));
  }
  return {};
}

Status check_preference(const TrainerSettings& settings) {
  const std::string_view loss = name_of(settings.preference->loss);
  const PreferenceOptions& options = *settings.preference;
  if (options.loss == PreferenceLoss::kRobust && !(options.label_smoothing < 0.5))
    return Status(StatusCode::kInvalidArgument,
                  format("trainer: option 'label_smoothing' is {}, wanted below 0.5 for loss 'robust', which "
                         "divides by 1 - 2 of it",
                         options.label_smoothing));
  if (!settings.losses.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("trainer: options 'loss' ({}) and 'losses' are of whole steps and of their parts: "
                         "wanted one of them",
                         loss));
  if (options.loss == PreferenceLoss::kKto && settings.batch < 2)
    return Status(StatusCode::kInvalidArgument,
                  "trainer: option 'batch' is 1, and loss 'kto' estimates its reference point from answers "
                  "to other prompts of the batch: wanted 2 or more");
  return {};
}

}  // namespace

void read_preference(OptionReader& reader, TrainerSettings& settings) {
  const std::string name =
      reader.choice("loss", kTokenLossName,
                    {kTokenLossName, "dpo", "ipo", "hinge", "robust", "orpo", "kto", "simpo", "cpo"});
  const std::optional<PreferenceLoss> loss = preference_loss_from_name(name);
  PreferenceOptions options;
  if (loss) options.loss = *loss;
  options.beta = reader.f64("beta", options.beta, 1e-9, 1e9);
  options.label_smoothing = reader.f64("label_smoothing", 0, 0, 1);
  options.simpo_gamma = reader.f64("simpo_gamma", options.simpo_gamma, -1e9, 1e9);
  options.cpo_alpha = reader.f64("cpo_alpha", options.cpo_alpha, 0, 1e9);
  options.desirable_weight = reader.f64("desirable_weight", 1, 0, 1e9);
  options.undesirable_weight = reader.f64("undesirable_weight", 1, 0, 1e9);
  settings.reference = reader.text("reference");
  const auto fail = [&](const Status& status) {
    if (!status.ok()) reader.fail(status);
  };
  fail(check_meaning(reader, name, loss));
  if (!loss) return;
  settings.preference = options;
  fail(check_preference(settings));
  // Without dropout the policy and the reference compute equal results for equal weights.
  if (settings.dropout < 0) settings.dropout = 0;
  settings.segments = is_paired(*loss) ? SegmentUse::kDocuments : SegmentUse::kPadding;
}

}  // namespace tessera

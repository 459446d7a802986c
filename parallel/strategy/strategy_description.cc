#include "parallel/strategy/strategy_description.h"

#include "graph/base/text.h"

namespace tessera {

namespace {

std::string counted(int64_t count, std::string_view one, std::string_view many) {
  return format("{} {}", count, count == 1 ? one : many);
}

std::string capital(std::string sentence) {
  if (!sentence.empty() && sentence[0] >= 'a' && sentence[0] <= 'z')
    sentence[0] = static_cast<char>(sentence[0] - 'a' + 'A');
  return sentence;
}

// "8 groups of layers, each split over 2 devices, 4 copies: 64 devices".
std::string layout(const StrategySpec& spec) {
  if (spec.devices() == 1) return "One device holds the whole model and does everything.";
  if (spec.devices() == spec.dp)
    return format("{} copies of the whole model, each with sequences of its own (dp={}): {} devices.",
                  spec.dp, spec.dp, spec.dp);
  std::vector<std::string> parts;
  if (spec.pp > 1)
    parts.push_back(format("{} groups of layers, one after the other (pp={})", spec.pp, spec.pp));
  else
    parts.emplace_back("the whole model");
  if (spec.tp > 1)
    parts.push_back(format("{}split over {} devices, each with a part of every matrix (tp={})",
                           spec.pp > 1 ? "each " : "", spec.tp, spec.tp));
  if (spec.cp > 1)
    parts.push_back(format("every sequence cut into {} parts on as many devices (cp={})", spec.cp, spec.cp));
  if (spec.ep > 1) parts.push_back(format("the experts dealt out to {} devices (ep={})", spec.ep, spec.ep));
  if (spec.dp > 1)
    parts.push_back(
        format("{} copies of all this, each with sequences of its own (dp={})", spec.dp, spec.dp));
  return capital(format("{}: {} devices.", join(parts, ", "), spec.devices()));
}

std::string rounds(const StrategySpec& spec, int64_t global_batch, int64_t micro_batches) {
  const int64_t at_once = micro_batches > 0 ? global_batch / micro_batches : global_batch;
  if (micro_batches <= 1)
    return format("The {} of a step {} through at once.", counted(global_batch, "sequence", "sequences"),
                  global_batch == 1 ? "goes" : "go");
  return format("The {} of a step go through in {} rounds of {} (micro-batches; mb={}: {} for each copy).",
                counted(global_batch, "sequence", "sequences"), micro_batches, at_once, at_once / spec.data(),
                counted(at_once / spec.data(), "sequence", "sequences"));
}

std::string order(const StrategySpec& spec) {
  switch (spec.schedule) {
    case ScheduleKind::kNone: return "";
    case ScheduleKind::kGpipe:
      return "All rounds go forward through the groups before the first comes back (gpipe): simple, and all "
             "wait in memory.";
    case ScheduleKind::k1F1B:
      return "A full pipeline takes one round back for each that it takes forward (1f1b), so that few wait "
             "in memory.";
    case ScheduleKind::kInterleaved:
      return format(
          "Every device has {} smaller groups of layers, dealt out in turn (interleaved:{}): devices wait "
          "less for each other, "
          "and send more.",
          spec.virtual_stages, spec.virtual_stages);
    case ScheduleKind::kZbH1:
      return "The way back is in two parts, the second of which fills waits (zb-h1), and needs what lies "
             "between them kept.";
    case ScheduleKind::kZbH2:
      return "The way back is in two parts, the second of which fills all waits (zb-h2): the fastest order, "
             "and the one that holds most.";
    case ScheduleKind::kZbV:
      return "Every device has an early and a late group of layers, and the way back is in two parts, the "
             "second of which fills waits (zb-v).";
  }
  return "";
}

std::string spread(int32_t zero) {
  constexpr std::string_view kWhat[] = {"", "The optimizer's state is",
                                        "Gradients and the optimizer's state are",
                                        "Weights, gradients and the optimizer's state are"};
  if (zero < 1 || zero > 3) return "";
  return format("{} divided among the copies instead of repeated in each{} (zero={}).", kWhat[zero],
                zero == 3 ? ", and weights gathered for use" : "", zero);
}

std::string place(Tier tier) { return tier == Tier::kHost ? "in the host's memory" : "in a file"; }

}  // namespace

std::vector<std::string> describe_strategy(const StrategySpec& spec, int64_t global_batch, int64_t micro_batches) {
  std::vector<std::string> sentences = {layout(spec), rounds(spec, global_batch, micro_batches), order(spec),
                                        spread(spec.zero)};
  if (spec.sp)
    sentences.emplace_back("Between matrices each device holds only its part of every sequence (sp).");
  if (spec.chunks > 1)
    sentences.push_back(
        format("What is gathered for use comes in {} slices (chunks={}).", spec.chunks, spec.chunks));
  if (spec.keep)
    sentences.emplace_back("What is gathered on the way forward is kept for the way back (keep).");
  if (spec.owt)
    sentences.emplace_back("Large matrices are split over the copies in place of the batch (owt).");
  if (spec.recompute == RecomputeForm::kFull)
    sentences.emplace_back(
        "What layers compute on the way forward is computed again on the way back in place of kept "
        "(recompute=full).");
  if (spec.recompute == RecomputeForm::kSome)
    sentences.emplace_back(
        "Some of what layers compute on the way forward is computed again on the way back in place of kept "
        "(recompute=some).");
  for (const auto& [what, word, tier] :
       {std::tuple("Weights wait", "params", spec.offload.params),
        std::tuple("Gradients wait", "grads", spec.offload.grads),
        std::tuple("The optimizer's state lies", "optimizer", spec.offload.optimizer),
        std::tuple("What the way back needs waits", "activations", spec.offload.activations)})
    if (tier != Tier::kDevice) sentences.push_back(format("{} {} (offload={}).", what, place(tier), word));
  std::erase(sentences, "");
  return sentences;
}

std::vector<std::string> describe_strategy(const std::string& strategy, int64_t global_batch,
                                     int64_t micro_batches) {
  const Result<StrategyPins> pins = parse_parallel(strategy == "single" ? "" : strategy);
  return pins.ok() ? describe_strategy(pins->spec, global_batch, micro_batches) : std::vector<std::string>();
}

}  // namespace tessera

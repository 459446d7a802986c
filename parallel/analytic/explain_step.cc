#include "parallel/analytic/explain_step.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/analytic/pipeline_replay.h"
#include "parallel/analytic/stage_time.h"
#include "parallel/analytic/transformer_tensors.h"
#include "parallel/planner/explain_reasons.h"
#include "parallel/strategy/plain_words.h"

namespace tessera {

namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

class StepExplainer {
 public:
  StepExplainer(const TransformerShape& model, const Cluster& cluster, const FoundStep& found,
                const ExplainStepOptions& options)
      : model_(model),
        cluster_(used(cluster, found.plan)),
        given_(static_cast<int64_t>(cluster.devices.size())),
        found_(found),
        options_(options),
        plan_(found.plan),
        times_(model, plan_, cluster_),
        m_(options.global_batch / (plan_.micro_batch * plan_.data())) {}

  Result<Explanation> run() {
    out_.lowered = false;
    out_.strategy = to_text(plan_);
    out_.mesh = format("pp={}, dp={}", plan_.pp, plan_.dp);
    if (plan_.ep > 1) out_.mesh += format(", ep={}", plan_.ep);
    if (plan_.cp > 1) out_.mesh += format(", cp={}", plan_.cp);
    out_.mesh += format(", tp={}", plan_.tp);
    out_.devices = given_;
    if (const int64_t used = plan_.devices(); used < given_)
      out_.reasons.push_back(
          format("{} of {} devices stay idle: with them no plan found is faster", given_ - used, given_));
    out_.global_batch = options_.global_batch;
    out_.micro_batches = m_;
    out_.step_s = found_.time.step_s;
    out_.words = plain_words(out_.strategy, out_.global_batch, m_);
    out_.memory_limit = options_.memory_limit > 0 ? options_.memory_limit : cluster_.kinds[0].memory_bytes;
    if (options_.search != nullptr) {
      out_.bound_s = options_.search->bound_s;
      out_.gap = options_.search->gap;
    }
    std::vector<ReplayedPass> passes;
    const bool mixed = options_.search != nullptr && options_.search->stage_kinds;
    TSR_RETURN_IF_ERROR(
        (mixed ? mixed_step_time(model_, plan_, *options_.search->stage_kinds, options_.global_batch,
                                 found_.stages, &passes)
               : step_time(model_, plan_, cluster_, options_.global_batch, found_.stages, &passes))
            .status());
    explain_time();
    explain_memory(passes);
    explain_stages();
    out_.tensors = transformer_tensors(model_, plan_);
    explain_runners_up();
    if (plan_.lora > 0 && options_.search == nullptr) {
      const StageParameters counts = times_.counts(model_.L, true, true);
      out_.reasons.push_back(format(
          "{} of {} parameters of a tensor-parallel rank are trained; the frozen ones have no gradient, "
          "no optimizer state and no reduction over data-parallel ranks",
          std::llround(counts.all_trained()), std::llround(counts.all())));
    }
    add_reasons(out_);
    if (options_.timeline) draw_timeline(std::move(passes));
    return std::move(out_);
  }

 private:
  static Cluster used(Cluster cluster, const ForeignPlan& plan) {
    cluster.devices.resize(std::min(cluster.devices.size(), static_cast<size_t>(plan.devices())));
    return cluster;
  }

  void explain_time() {
    const StepTime& time = found_.time;
    const auto add = [&](std::string cause, std::string axis, double seconds) {
      if (seconds > 0) out_.time.push_back({std::move(cause), std::move(axis), seconds, 0});
    };
    add("compute", "", time.compute_s - time.recompute_s);
    add("recompute", "", time.recompute_s);
    add("communication", axes({{"ep", plan_.ep}, {"cp", plan_.cp}, {"tp", plan_.tp}}),
        time.communication_s - time.sends_s);
    add("communication", "pp", time.sends_s);
    add("communication", axes({{"dp", plan_.dp}, {"ep", plan_.ep}, {"cp", plan_.cp}}), time.gradients_s);
    add("offload", "", time.offload_s);
    add("bubble", "", time.bubble_s);
    add("update", "", time.update_s);
    double sum = 0;
    for (const TimeShare& share : out_.time) sum += share.seconds;
    // A pipeline whose busiest stage is not the one that everything waits for has a little of neither.
    if (const double rest = time.step_s - sum; rest > 1e-9 * time.step_s) add("waiting", "", rest);
    out_.critical = plan_.pp == 1 ? std::string("each device") : format("stage {}", time.slowest);
  }

  // Those with more than one device.
  static std::string axes(std::initializer_list<std::pair<const char*, int32_t>> all) {
    std::vector<std::string> names;
    for (const auto& [name, size] : all)
      if (size > 1) names.emplace_back(name);
    return names.empty() ? std::string() : join(names, "+");
  }

  void explain_memory(const std::vector<ReplayedPass>& passes) {
    out_.bytes_by_device = found_.memory_bytes;
    const auto fullest =
        static_cast<int32_t>(std::ranges::max_element(found_.memory_bytes) - found_.memory_bytes.begin());
    flights_ = in_flight(plan_, fullest, m_);
    memory_ = times_.memory(blocks_on(found_, fullest), fullest == 0, holds_head(plan_, fullest), flights_,
                            plan_.virtual_stages);
    out_.memory_bytes = found_.memory_bytes[static_cast<size_t>(fullest)];
    const auto add = [&](const char* cause, int64_t bytes) {
      if (bytes > 0) out_.memory.push_back({cause, bytes, Tier::kDevice});
    };
    add("parameters", memory_.parameters);
    add("optimizer", memory_.optimizer);
    add("gradients", memory_.gradients);
    add("activations", memory_.activations);
    add("logits", memory_.logits);
    add("gathered", memory_.gathered);
    add("transient", memory_.transient);
    add("reserved", memory_.reserved);
    add("unused", out_.memory_bytes - memory_.total());
    if (memory_.host > 0) out_.memory.push_back({"offloaded", memory_.host, Tier::kHost});

    out_.peak.device = plan_.pp == 1 ? std::string("each device") : format("stage {}", fullest);
    out_.peak.entry = "train_step";
    for (const ReplayedPass& pass : passes) {
      if (pass.device != fullest) continue;
      if ((pass.backward || pass.weight) && out_.peak.instruction < 0) {
        out_.peak.instruction = out_.peak.instructions;
        out_.peak.what =
            format("first backward pass (micro-batch {}), {} in flight", pass.micro_batch, flights_);
      }
      ++out_.peak.instructions;
    }
    for (const MemoryShare& share : out_.memory)
      if (share.tier == Tier::kDevice && share.cause != "unused")
        out_.peak.largest.push_back({share.cause, share.cause, share.bytes});
    std::ranges::stable_sort(out_.peak.largest, std::greater(), &PeakBuffer::bytes);
  }

  void explain_stages() {
    const std::string columns = plan_.tp > 1 ? "columns over tp" : "whole",
                      rows = plan_.tp > 1 ? "rows over tp" : "whole";
    const std::string tokens =
        plan_.dp > 1 ? format("batch over dp{}", plan_.sequence_parallel ? ", sequence over tp" : "")
        : plan_.sequence_parallel ? std::string("sequence over tp")
                                  : std::string("whole");
    int64_t first = 0, before = 0;
    StageBlocks last_stage;
    int32_t alike = 0;  // stages of the last entry
    const bool in_chunks = plan_.virtual_stages > 1;
    for (int32_t device = 0; device < plan_.pp; ++device) {
      const StageBlocks stage = blocks_on(found_, device);
      before = first;
      first += stage.blocks;
      if (alike > 0 && stage == last_stage) {
        BlockDecision& block = out_.blocks.back();
        ++alike;
        block.count += stage.blocks;
        block.recomputed += stage.full + stage.selective;
        block.name = stage_name(block.stage, device, stage, first - block.count, first);
        continue;
      }
      alike = 1;
      last_stage = stage;
      BlockDecision& block = out_.blocks.emplace_back();
      block.stage = device;
      block.count = stage.blocks;
      block.name = stage_name(device, device, stage, before, first);
      block.recomputed = stage.full + stage.selective;
      std::vector<std::string> parts;
      if (stage.full > 0) parts.push_back(format("{} in full", stage.full));
      if (stage.selective > 0) parts.push_back(format("{} attention scores", stage.selective));
      for (const int64_t blocks : stage.offloaded) block.offloaded += blocks;
      block.chunks = plan_.chunks;
      block.recompute = parts.empty() ? "none" : join(parts, ", ");
      if (!parts.empty() && plan_.pp > 1) block.recompute += " of each stage";
      block.ops = {{"q, k, v and first products of the feed-forward", columns},
                   {"attention", plan_.tp > 1 ? "heads over tp" : "whole"},
                   {"o and last product of the feed-forward", rows},
                   {"norms and residuals", tokens}};
      const auto lies = [&](int32_t from) {
        return plan_.zero >= from && plan_.dp > 1 ? "over dp" : "whole";
      };
      block.parameters = {{"weights", lies(3)}, {"gradients", lies(2)}, {"optimizer state", lies(1)}};
      if (in_chunks) block.parameters.emplace_back("chunks of a stage", to_text(plan_.virtual_stages));
    }
  }

  // "block.12 to 83, 12 a stage"; chunks of a stage lie apart, so only their number is said.
  std::string stage_name(int32_t from, int32_t to, const StageBlocks& each, int64_t first,
                         int64_t end) const {
    const std::string stages = plan_.pp == 1 ? ""
                               : from == to  ? format("stage {}: ", from)
                                             : format("stages {} to {}: ", from, to);
    if (plan_.virtual_stages > 1)
      return format("{}{} blocks{} in {} chunks", stages, each.blocks, from == to ? "" : " each",
                    plan_.virtual_stages);
    if (end <= first) return stages + "no block";
    return format("{}{}{}", stages,
                  end - first == 1 ? format("block.{}", first) : format("block.{} to {}", first, end - 1),
                  from == to ? std::string() : format(", {} each", each.blocks));
  }

  void explain_runners_up() {
    const auto add = [&](const FoundStep& step, std::string why) {
      RunnerUp& other = out_.runners_up.emplace_back();
      other.strategy = to_text(step.plan);
      other.step_s = step.time.step_s;
      other.loses_s = step.time.step_s - found_.time.step_s;
      other.bytes = std::ranges::max(step.memory_bytes);
      other.over_bytes = std::max<int64_t>(0, other.bytes - out_.memory_limit);
      other.why = std::move(why);
    };
    if (options_.search == nullptr) return;
    for (const FoundStep& step : options_.search->runners_up) add(step, "");
    // One decision changed, where that does not fit: what memory costs.
    std::vector<std::pair<ForeignPlan, std::string>> others;
    const auto vary = [&](const char* what, auto change) {
      ForeignPlan plan = plan_;
      change(plan);
      const std::string words = to_text(plan);
      const auto same = [&](const auto& other) { return to_text(other.first) == words; };
      if (words != to_text(plan_) && std::ranges::none_of(others, same)) others.emplace_back(plan, what);
    };
    vary("without recomputation", [](ForeignPlan& p) { p.recompute = Recompute::kNone; });
    vary("a ZeRO stage less", [](ForeignPlan& p) { p.zero = std::max(0, p.zero - 1); });
    vary("without ZeRO", [](ForeignPlan& p) { p.zero = 0; });
    vary("twice the micro-batch", [](ForeignPlan& p) { p.micro_batch *= 2; });
    vary("half the tensor parallelism", [](ForeignPlan& p) {
      if (p.tp % 2 == 0) p.tp /= 2, p.dp *= 2;
      if (p.tp == 1) p.sequence_parallel = false;
    });
    vary("half the pipeline", [](ForeignPlan& p) {
      if (p.pp % 2 == 0) p.pp /= 2, p.dp *= 2;
      if (p.pp == 1) p.schedule = ForeignSchedule::k1F1B, p.virtual_stages = 1;
    });
    for (const auto& [plan, what] : others) {
      const auto step = price_step(model_, plan, cluster_, options_.global_batch);
      if (!step.ok()) continue;
      const int64_t bytes = std::ranges::max(step->memory_bytes);
      if (bytes <= out_.memory_limit) continue;
      add(*step,
          format("{}: needs {}, the limit is {}", what, bytes_text(bytes), bytes_text(out_.memory_limit)));
    }
  }

  void draw_timeline(std::vector<ReplayedPass> passes) {
    Timeline& timeline = out_.timeline;
    for (int32_t device = 0; device < plan_.pp; ++device)
      timeline.rows.emplace_back(format("stage {}", device), "compute");
    timeline.causes = {"forward", "backward", "communication dp", "update", "weight gradients"};
    timeline.labels = {"gradients over dp", "update"};
    draw_curve(passes);
    double end_s = 0;
    for (const ReplayedPass& pass : passes) end_s = std::max(end_s, pass.end_s);
    std::ranges::stable_sort(passes, {}, &ReplayedPass::begin_s);
    if (passes.size() > options_.most_spans) {
      passes.resize(options_.most_spans);
      timeline.complete = false;
    }
    const auto first_label = static_cast<int32_t>(timeline.labels.size());
    for (size_t v = 0; v < found_.stages.size(); ++v)
      for (const char* way : {"forward", "backward", "weight gradients"})
        timeline.labels.push_back(
            format("{}, {} blocks{}", way, found_.stages[v].blocks,
                   plan_.virtual_stages > 1 ? format(" (virtual stage {})", v) : std::string()));
    for (const ReplayedPass& pass : passes)
      timeline.spans.push_back({pass.device,
                                pass.weight     ? 4
                                : pass.backward ? 1
                                                : 0,
                                first_label + 3 * pass.stage +
                                    (pass.weight     ? 2
                                     : pass.backward ? 1
                                                     : 0),
                                static_cast<int32_t>(pass.micro_batch), nanoseconds(pass.begin_s),
                                nanoseconds(pass.end_s)});
    for (int32_t device = 0; device < plan_.pp; ++device) {
      const double gradients = end_s + found_.time.gradients_s;
      if (found_.time.gradients_s > 0)
        timeline.spans.push_back({device, 2, 0, 0, nanoseconds(end_s), nanoseconds(gradients)});
      timeline.spans.push_back(
          {device, 3, 1, 0, nanoseconds(gradients), nanoseconds(gradients + found_.time.update_s)});
    }
  }

  // What is there all the time, and on top of it activations as micro-batches come and go.
  void draw_curve(const std::vector<ReplayedPass>& passes) {
    const auto fullest =
        static_cast<int32_t>(std::ranges::max_element(found_.memory_bytes) - found_.memory_bytes.begin());
    MemoryCurve& curve = out_.curve;
    curve.in_time = true;
    std::vector<int64_t> live, at_ns;
    int64_t now = 0;
    for (const ReplayedPass& pass : passes) {
      if (pass.device != fullest) continue;
      const bool frees = plan_.splits_backward() ? pass.weight : pass.backward;
      if (!pass.backward && !pass.weight) ++now;
      at_ns.push_back(nanoseconds(pass.begin_s));
      live.push_back(now);
      if (frees) --now;
    }
    const int64_t most = std::max<int64_t>(1, live.empty() ? 1 : std::ranges::max(live));
    const std::pair<const char*, int64_t> constant[] = {
        {"parameters", memory_.parameters}, {"optimizer", memory_.optimizer},
        {"gradients", memory_.gradients},   {"reserved", memory_.reserved},
        {"gathered", memory_.gathered},     {"transient", memory_.transient},
        {"logits", memory_.logits},
    };
    for (const auto& [cause, bytes] : constant)
      if (bytes > 0) curve.causes.emplace_back(cause);
    curve.causes.emplace_back("activations");
    curve.bytes.resize(curve.causes.size());
    const size_t each = (live.size() + options_.most_points - 1) / std::max<size_t>(1, options_.most_points);
    for (size_t begin = 0; begin < live.size(); begin += each) {
      const size_t end = std::min(live.size(), begin + each);
      const auto fullest_at =
          static_cast<size_t>(std::max_element(live.begin() + static_cast<std::ptrdiff_t>(begin),
                                               live.begin() + static_cast<std::ptrdiff_t>(end)) -
                              live.begin());
      curve.position.push_back(at_ns[fullest_at]);
      size_t c = 0;
      for (const auto& [cause, bytes] : constant)
        if (bytes > 0) curve.bytes[c++].push_back(bytes);
      curve.bytes[c].push_back(memory_.activations / most * live[fullest_at] +
                               memory_.activations % most * live[fullest_at] / most);
    }
  }

  const TransformerShape& model_;
  const Cluster cluster_;  // its devices that the plan uses
  const int64_t given_;
  const FoundStep& found_;
  const ExplainStepOptions& options_;
  const ForeignPlan plan_;
  const StageTimes times_;
  const int64_t m_;
  int64_t flights_ = 0;
  StageMemory memory_;  // of the fullest stage
  Explanation out_;
};

}  // namespace

Result<Explanation> explain_step(const TransformerShape& model, const Cluster& cluster,
                                 const FoundStep& found, const ExplainStepOptions& options) {
  return StepExplainer(model, cluster, found, options).run();
}

Result<FoundStep> price_step(const TransformerShape& model, const ForeignPlan& plan, const Cluster& cluster,
                             int64_t global_batch) {
  FoundStep found;
  found.plan = plan;
  TSR_ASSIGN_OR_RETURN(found.time, step_time(model, plan, cluster, global_batch));
  found.stages = even_stages(model, plan);
  const StageTimes times(model, plan, cluster);
  for (int32_t device = 0; device < plan.pp; ++device)
    found.memory_bytes.push_back(times.memory_bytes(
        blocks_on(found, device), device == 0, holds_head(plan, device),
        in_flight(plan, device, global_batch / (plan.micro_batch * plan.data())), plan.virtual_stages));
  return found;
}

}  // namespace tessera

#include "parallel/analytic/explain_generate.h"

#include <algorithm>
#include <cmath>

#include "graph/base/text.h"
#include "parallel/analytic/transformer_tensors.h"

namespace tessera {

namespace {

int64_t nanoseconds(double seconds) { return std::llround(seconds * 1e9); }

// Tenths of a percent.
std::string percent(double share) {
  const auto tenths = static_cast<int64_t>(share * 1000 + 0.5);
  return format("{}.{} %", tenths / 10, tenths % 10);
}

class GenerateExplainer {
 public:
  GenerateExplainer(const TransformerShape& model, const Cluster& cluster, const GenerateOptions& search,
                    const GenerateResult& found, const ExplainGenerateOptions& options)
      : model_(model),
        cluster_(cluster),
        search_(search),
        found_(found),
        options_(options),
        plan_(found.best.plan),
        time_(found.best.time),
        work_(search.work),
        passes_(generate_passes(model, cluster, search.work, found.best.plan)),
        fullest_(fullest_stage(model, cluster_.kinds[0], search.work, found.best.plan)),
        memory_(generate_memory(model, cluster_.kinds[0], search.work, found.best.plan, fullest_)) {}

  Explanation run() {
    out_.lowered = false;
    out_.strategy = to_text(plan_);
    out_.mesh = format("pp={}, dp={}, tp={}", plan_.pp, plan_.dp, plan_.tp);
    out_.devices = static_cast<int64_t>(cluster_.devices.size());
    out_.global_batch = plan_.dp * plan_.batch;
    out_.micro_batches = passes_.parts;
    out_.step_s = time_.request_s;
    out_.memory_limit = search_.memory_limit > 0 ? search_.memory_limit : cluster_.kinds[0].memory_bytes;
    out_.gap = found_.gap;
    Serving& serving = out_.serving.emplace();
    serving.throughput = search_.throughput;
    serving.prompt = work_.prompt, serving.new_tokens = work_.new_tokens;
    serving.sequences = out_.global_batch, serving.replicas = plan_.dp;
    serving.prefill_batch = std::min(plan_.prefill_batch, plan_.batch);
    serving.first_token_s = time_.first_token_s, serving.token_s = time_.token_s;
    serving.tokens_per_s = time_.tokens_per_s;
    if (search_.throughput)
      serving.bound_tokens_per_s = found_.bound;
    else
      out_.bound_s = found_.bound;
    explain_time();
    explain_memory();
    explain_stages();
    explain_tensors();
    explain_runners_up();
    explain_reasons();
    if (options_.timeline) {
      draw_timeline();
      draw_curve();
    }
    return std::move(out_);
  }

 private:
  std::string name_of(size_t stage) const {
    return plan_.pp == 1 ? std::string("each device") : format("stage {}", stage);
  }

  static size_t slowest_of(const std::vector<StagePass>& stages) {
    return static_cast<size_t>(std::ranges::max_element(stages, {}, &StagePass::seconds) - stages.begin());
  }

  // Of the stage whose token takes longest: `times` passes of its own, and waiting until the phase is over.
  void add_phase(const char* phase, const StagePass& stage, double times, double seconds) {
    const auto add = [&](const char* cause, const char* axis, double part) {
      if (part > 0) out_.time.push_back({cause, axis, part, 0, phase});
    };
    add("compute", "", times * stage.compute_s);
    add("caches", "", times * stage.cache_s);
    add("communication", "tp", times * stage.collective_s);
    add("communication", "pp", times * stage.send_s);
    // What is left over by rounding alone is no wait.
    if (const double rest = seconds - times * stage.seconds(); rest > 1e-9 * seconds) add("bubble", "", rest);
  }

  void explain_time() {
    const size_t slowest = slowest_of(passes_.decode);
    out_.critical = name_of(slowest);
    add_phase("prefill", passes_.prefill[slowest], static_cast<double>(passes_.parts), time_.first_token_s);
    const auto rounds = static_cast<double>(work_.new_tokens - 1);
    add_phase("decode", passes_.decode[slowest], rounds * static_cast<double>(passes_.groups),
              rounds * time_.token_s);
  }

  void explain_memory() {
    out_.memory_bytes = time_.memory_bytes;
    for (int32_t stage = 0; stage < plan_.pp; ++stage)
      out_.bytes_by_device.push_back(generate_memory(model_, cluster_.kinds[0], work_, plan_, stage).total());
    for (const auto& [cause, bytes] : causes())
      if (bytes > 0) {
        out_.memory.push_back({cause, bytes, Tier::kDevice});
        out_.peak.largest.push_back({cause, cause, bytes});
      }
    std::ranges::stable_sort(out_.peak.largest, std::greater(), &PeakBuffer::bytes);
    out_.peak.device = name_of(static_cast<size_t>(fullest_));
    out_.peak.entry = "generate";
    const std::string sequences = plan_.batch == 1 ? "one sequence" : format("{} sequences", plan_.batch);
    out_.peak.what = format("the last of {} new tokens, {} tokens of {} kept", work_.new_tokens,
                            work_.prompt + work_.new_tokens, sequences);
  }

  std::vector<std::pair<const char*, int64_t>> causes() const {
    return {{"parameters", memory_.parameters},
            {"caches", memory_.caches},
            {"transient", memory_.transient},
            {"logits", memory_.logits},
            {"reserved", memory_.reserved}};
  }

  void explain_stages() {
    const bool split = plan_.tp > 1;
    const int64_t heads = std::max<int64_t>(1, model_.KV / plan_.tp);
    int64_t first = 0;
    int32_t alike = 0, from = 0;
    for (int32_t stage = 0; stage < plan_.pp; ++stage) {
      const int64_t blocks = model_.L / plan_.pp + (stage < model_.L % plan_.pp ? 1 : 0);
      first += blocks;
      if (alike > 0 && out_.blocks.back().count == blocks * alike) {
        BlockDecision& same = out_.blocks.back();
        same.count += blocks, ++alike;
        same.name = format("stages {} to {}: block.{} to {}, {} each", from, stage, first - same.count,
                           first - 1, blocks);
        continue;
      }
      alike = 1, from = stage;
      BlockDecision& block = out_.blocks.emplace_back();
      block.count = blocks, block.stage = stage, block.recompute = "none";
      const std::string range =
          blocks == 1 ? format("block.{}", first - 1) : format("block.{} to {}", first - blocks, first - 1);
      block.name = plan_.pp == 1 ? range : format("stage {}: {}", stage, range);
      block.ops = {{"q, k, v and first products of the feed-forward", split ? "columns over tp" : "whole"},
                   {"attention", split ? "heads over tp" : "whole"},
                   {"o and last product of the feed-forward", split ? "rows over tp, then summed" : "whole"},
                   {"norms and residuals", "whole"}};
      block.parameters = {{"weights", split ? "over tp" : "whole"},
                          {"keys and values", format("{} of {} heads on each device", heads, model_.KV)}};
    }
  }

  void explain_tensors() {
    ForeignPlan plan;
    plan.tp = plan_.tp, plan.pp = plan_.pp, plan.dp = plan_.dp, plan.compute_dtype = work_.dtype;
    for (ExplainedTensor& tensor : transformer_tensors(model_, plan))
      if (tensor.kind == "parameter") out_.tensors.push_back(std::move(tensor));
    const int64_t tokens = work_.prompt + work_.new_tokens, head = model_.head_size();
    const int64_t blocks = (model_.L + plan_.pp - 1) / plan_.pp;
    for (const char* name : {"keys", "values"}) {
      ExplainedTensor& it = out_.tensors.emplace_back();
      it.name = format("block.*.{}", name), it.kind = "cache", it.tier = "device", it.stage = -1;
      it.type =
          format("{}[{}, {}, {}, {}]", to_text(work_.dtype), plan_.dp * plan_.batch, tokens, model_.KV, head);
      it.sharding = format("{[{}], [], [{}], []}", plan_.dp > 1 ? "dp" : "", plan_.tp > 1 ? "tp" : "");
      it.bytes = generate_memory(model_, cluster_.kinds[0], work_, plan_, 0).caches / (2 * blocks);
      it.count = model_.L;
      if (plan_.tp > model_.KV) it.note = format("every head on {} devices", plan_.tp / model_.KV);
    }
  }

  void explain_runners_up() {
    const auto add = [&](const GeneratePlan& plan, const GenerateTime& time, std::string why) {
      RunnerUp& other = out_.runners_up.emplace_back();
      other.strategy = to_text(plan);
      other.step_s = time.request_s;
      other.loses_s = time.request_s - time_.request_s;
      other.bytes = time.memory_bytes;
      other.over_bytes = std::max<int64_t>(0, time.memory_bytes - out_.memory_limit);
      other.why = std::move(why);
      other.tokens_per_s = time.tokens_per_s;
    };
    for (const FoundGenerate& other : found_.runners_up) add(other.plan, other.time, "");
    // One decision changed, where that does not fit: what memory costs.
    const auto vary = [&](const char* what, auto change) {
      GeneratePlan plan = plan_;
      change(plan);
      if (plan == plan_ || !check_generate_plan(model_, cluster_, work_, plan).ok()) return;
      const GenerateTime time = generate_time(model_, cluster_, work_, plan);
      if (time.memory_bytes > out_.memory_limit)
        add(plan, time,
            format("{}: needs {}, the limit is {}", what, bytes_text(time.memory_bytes),
                   bytes_text(out_.memory_limit)));
      else if (search_.kv_budget > 0 && time.kv_bytes > search_.kv_budget)
        add(plan, time,
            format("{}: keys and values need {}, their budget is {}", what, bytes_text(time.kv_bytes),
                   bytes_text(search_.kv_budget)));
    };
    if (search_.throughput) vary("twice the sequences", [](GeneratePlan& p) { p.batch *= 2; });
    vary("half the tensor parallelism", [](GeneratePlan& p) {
      if (p.tp % 2 == 0) p.tp /= 2;
    });
    vary("half the pipeline", [](GeneratePlan& p) {
      if (p.pp % 2 == 0) p.pp /= 2;
    });
    vary("all prompts at a time", [](GeneratePlan& p) { p.prefill_batch = p.batch; });
  }

  void explain_reasons() {
    const auto say = [&](std::string text) { out_.reasons.push_back(std::move(text)); };
    const int64_t used = int64_t{plan_.tp} * plan_.pp * plan_.dp;
    if (used < out_.devices)
      say(format("{} of {} devices stay idle: with them no plan found is {}", out_.devices - used,
                 out_.devices, search_.throughput ? "faster" : "sooner done"));
    // What a token's time goes to.
    const size_t slowest = slowest_of(passes_.decode);
    const StagePass& stage = passes_.decode[slowest];
    const double rate = cluster_.kinds[0].memory_bytes_per_s;
    if (const int64_t weights =
            generate_memory(model_, cluster_.kinds[0], work_, plan_, static_cast<int32_t>(slowest))
                .parameters;
        rate > 0)
      say(format("A further token takes {} on {}; to read its {} of weights alone takes {}",
                 time_text(static_cast<double>(passes_.groups) * stage.seconds()), out_.critical,
                 bytes_text(weights),
                 time_text(static_cast<double>(passes_.groups) * static_cast<double>(weights) / rate)));
    const double whole = stage.seconds();
    if (stage.cache_s > 0.3 * whole)
      say(format("{} of it is reading keys and values: fewer sequences or shorter ones would shorten it",
                 percent(stage.cache_s / whole)));
    if (stage.collective_s + stage.send_s > 0.2 * whole)
      say(format("{} of it is communication", percent((stage.collective_s + stage.send_s) / whole)));
    if (search_.throughput) explain_batch();
    explain_memory_cost();
    explain_other_objective();
  }

  // Why no more sequences.
  void explain_batch() {
    if (search_.batch > 0 || search_.replica_batch) return;
    GeneratePlan more = plan_;
    ++more.batch;
    more.prefill_batch = 1;
    const GenerateTime time = generate_time(model_, cluster_, work_, more);
    const auto say = [&](std::string text) { out_.reasons.push_back(std::move(text)); };
    if (time.memory_bytes > out_.memory_limit)
      say(format("{} sequences are all that fit beside the weights of a replica: one more needs {} of {}",
                 plan_.batch, bytes_text(time.memory_bytes), bytes_text(out_.memory_limit)));
    else if (search_.kv_budget > 0 && time.kv_bytes > search_.kv_budget)
      say(format("{} sequences of a replica are all that the budget of {} for keys and values allows",
                 plan_.batch, bytes_text(search_.kv_budget)));
    else
      say(format(
          "More than {} sequences a replica would fit; none that fits gives 0.1 % more tokens a second",
          plan_.batch));
  }

  void explain_memory_cost() {
    const RunnerUp* better = nullptr;
    const auto gains = [&](const RunnerUp& other) {
      return search_.throughput ? other.tokens_per_s / time_.tokens_per_s - 1
                                : 1 - other.step_s / time_.request_s;
    };
    for (const RunnerUp& other : out_.runners_up)
      if (!other.why.empty() && gains(other) > 1e-3 && (better == nullptr || gains(other) > gains(*better)))
        better = &other;
    if (better == nullptr) return;
    out_.reasons.push_back(format("Memory costs {} of the {}: '{}' would be better; {}",
                                  percent(gains(*better)), search_.throughput ? "throughput" : "request",
                                  better->strategy, better->why));
  }

  // What asking for the other would choose.
  void explain_other_objective() {
    GenerateOptions other = search_;
    other.throughput = !search_.throughput;
    const auto found = search_generate(model_, cluster_, other);
    if (!found.ok() || found->best.plan == plan_) return;
    const GenerateTime& time = found->best.time;
    out_.reasons.push_back(
        format("For {} the best is '{}': {} tokens/s instead of {}, {} a request instead "
               "of {}",
               other.throughput ? "throughput" : "latency", to_text(found->best.plan),
               std::llround(time.tokens_per_s), std::llround(time_.tokens_per_s), time_text(time.request_s),
               time_text(time_.request_s)));
  }

  static std::string time_text(double seconds) {
    if (seconds >= 1) return format("{} s", std::round(seconds * 1000) / 1000);
    if (seconds >= 1e-3) return format("{} ms", std::round(seconds * 1e6) / 1000);
    return format("{} us", std::round(seconds * 1e7) / 10);
  }

  // Parts of the prompts one behind the other; then rounds of all groups, the last of which begins where
  // prefill ends, the others before it, as they were read before it.
  void draw_timeline() {
    Timeline& timeline = out_.timeline;
    for (int32_t stage = 0; stage < plan_.pp; ++stage)
      timeline.rows.emplace_back(format("stage {}", stage), "compute");
    timeline.causes = {"prefill", "decode"};
    timeline.labels = {format("prefill, {} prompts", std::min(plan_.prefill_batch, plan_.batch))};
    const auto stages = static_cast<size_t>(plan_.pp);
    std::vector<double> free(stages, 0.0);
    for (int64_t part = 0; part < passes_.parts; ++part) {
      double at = 0;
      for (size_t s = 0; s < stages; ++s) {
        at = std::max(at, free[s]);
        const double end = at + passes_.prefill[s].seconds();
        add_span(s, 0, 0, part, at, end);
        at = free[s] = end;
      }
    }
    const double slowest = passes_.decode[slowest_of(passes_.decode)].seconds();
    for (int64_t group = 0; group < passes_.groups; ++group)
      timeline.labels.push_back(passes_.groups > 1 ? format("a token of group {}", group)
                                                   : format("a token of {} sequences", plan_.batch));
    for (int64_t token = 1; token < work_.new_tokens && timeline.complete; ++token)
      for (int64_t group = 0; group < passes_.groups; ++group) {
        double at = time_.first_token_s + static_cast<double>(token - 1) * time_.token_s -
                    static_cast<double>(passes_.groups - 1 - group) * slowest;
        for (size_t s = 0; s < stages; ++s) {
          const double end = at + passes_.decode[s].seconds();
          if (const double begin = std::max(at, free[s]); begin < end)
            add_span(s, 1, 1 + static_cast<int32_t>(group), token, begin, end);
          at = end;
        }
      }
  }

  void add_span(size_t row, int32_t cause, int32_t label, int64_t number, double begin_s, double end_s) {
    Timeline& timeline = out_.timeline;
    if (timeline.spans.size() >= options_.most_spans) {
      timeline.complete = false;
      return;
    }
    timeline.spans.push_back({static_cast<int32_t>(row), cause, label, static_cast<int32_t>(number),
                              nanoseconds(begin_s), nanoseconds(end_s)});
  }

  // Keys and values as they fill what is set aside for them.
  void draw_curve() {
    MemoryCurve& curve = out_.curve;
    curve.in_time = true;
    const std::pair<const char*, int64_t> constant[] = {{"parameters", memory_.parameters},
                                                        {"transient", memory_.transient},
                                                        {"logits", memory_.logits},
                                                        {"reserved", memory_.reserved}};
    for (const auto& [cause, bytes] : constant)
      if (bytes > 0) curve.causes.emplace_back(cause);
    curve.causes.emplace_back("caches");
    curve.bytes.resize(curve.causes.size());
    const int64_t all = work_.prompt + work_.new_tokens;
    const auto point = [&](double at_s, double share) {
      curve.position.push_back(nanoseconds(at_s));
      size_t c = 0;
      for (const auto& [cause, bytes] : constant)
        if (bytes > 0) curve.bytes[c++].push_back(bytes);
      curve.bytes[c].push_back(static_cast<int64_t>(share * static_cast<double>(memory_.caches)));
    };
    const double prompts = static_cast<double>(work_.prompt) / static_cast<double>(all);
    const auto most = static_cast<int64_t>(std::max<size_t>(4, options_.most_points));
    const int64_t each_part = (passes_.parts + most / 2 - 1) / (most / 2);
    for (int64_t part = 0; part < passes_.parts; part += each_part)
      point(time_.first_token_s * static_cast<double>(part) / static_cast<double>(passes_.parts),
            prompts * static_cast<double>(part) / static_cast<double>(passes_.parts));
    const int64_t each_token = (work_.new_tokens + most / 2 - 1) / (most / 2);
    for (int64_t token = 0; token < work_.new_tokens - 1; token += each_token)
      point(time_.first_token_s + static_cast<double>(token) * time_.token_s,
            static_cast<double>(work_.prompt + token + 1) / static_cast<double>(all));
    point(time_.request_s, 1);
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const GenerateOptions& search_;
  const GenerateResult& found_;
  const ExplainGenerateOptions& options_;
  const GeneratePlan plan_;
  const GenerateTime time_;
  const GenerateWork work_;
  const GeneratePasses passes_;
  const int32_t fullest_;
  const GenerateMemory memory_;
  Explanation out_;
};

}  // namespace

Explanation explain_generate(const TransformerShape& model, const Cluster& cluster,
                             const GenerateOptions& search, const GenerateResult& found,
                             const ExplainGenerateOptions& options) {
  return GenerateExplainer(model, cluster, search, found, options).run();
}

}  // namespace tessera

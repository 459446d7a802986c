#include "parallel/planner/explain.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/analysis/block_scope.h"
#include "graph/base/text.h"
#include "graph/transform/serving.h"
#include "parallel/planner/explained_layout.h"

namespace tessera {

namespace {

class GenerationExplainer {
 public:
  GenerationExplainer(GenerationPrices& prices, const GenerationOptions& search,
                      const GenerationResult& found, const ExplanationDrawings& drawings)
      : prices_(prices),
        search_(search),
        found_(found),
        drawings_(drawings),
        plan_(found.best.plan),
        time_(found.best.time),
        work_(search.work),
        memory_(found.best.time.memory) {}

  Result<Explanation> run() {
    TSR_ASSIGN_OR_RETURN(prefill_, prices_.prefill(plan_));
    TSR_ASSIGN_OR_RETURN(decode_, prices_.decode(plan_, plan_.group()));
    TSR_ASSIGN_OR_RETURN(const std::vector<GenerationMemory> stages, prices_.memory(plan_, plan_.group()));
    std::vector<int64_t> bytes_by_device;
    for (const GenerationMemory& stage : stages) bytes_by_device.push_back(stage.total());
    fullest_ = set_device_bytes(out_, std::move(bytes_by_device), search_.limit(prices_.cluster()));
    slowest_ = static_cast<size_t>(std::ranges::max_element(decode_, {}, &GenerationPass::seconds) -
                                   decode_.begin());
    out_.lowered = false;
    out_.strategy = to_text(plan_);
    out_.mesh = format("pp={}, dp={}, tp={}", plan_.pp, plan_.dp, plan_.tp);
    out_.devices = static_cast<int64_t>(prices_.cluster().devices.size());
    out_.global_batch = plan_.dp * plan_.batch;
    out_.micro_batches = plan_.parts();
    out_.step_s = time_.request_s;
    out_.gap = found_.gap;
    Serving& serving = out_.serving.emplace();
    serving.throughput = search_.throughput;
    serving.prompt = work_.prompt, serving.new_tokens = work_.new_tokens;
    serving.sequences = out_.global_batch, serving.replicas = plan_.dp;
    serving.prefill_batch = plan_.part();
    serving.first_token_s = time_.first_token_s, serving.token_s = time_.token_s;
    serving.tokens_per_s = time_.tokens_per_s;
    (search_.throughput ? serving.bound_tokens_per_s : out_.bound_s) = found_.bound;
    explain_time();
    explain_memory();
    TSR_ASSIGN_OR_RETURN(const ServingProgram program, prices_.lower(plan_.tp, false, plan_.group()));
    explain_stages(program.layout);
    TSR_RETURN_IF_ERROR(explain_tensors(program));
    explain_runners_up();
    explain_reasons();
    if (drawings_.wanted) {
      draw_timeline();
      draw_curve();
    }
    return std::move(out_);
  }

 private:
  std::string name_of(size_t stage) const { return stage_name(static_cast<int64_t>(stage), plan_.pp); }

  // Adds a phase of the slowest stage: `times` of its passes, and the wait until the phase ends.
  void add_phase(const char* phase, const GenerationPass& stage, double times, double seconds) {
    const auto add = [&](const char* cause, const char* axis, double part) {
      if (part > 0) out_.time.push_back({cause, axis, part, 0, phase});
    };
    add("compute", "", times * stage.compute_s);
    add("caches", "", times * stage.cache_s);
    add("communication", "tp", times * stage.collective_s);
    add("communication", "pp", times * stage.send_s);
    // A remainder from rounding is no wait.
    if (const double rest = seconds - times * stage.seconds(); rest > 1e-9 * seconds) add("bubble", "", rest);
  }

  void explain_time() {
    out_.critical = name_of(slowest_);
    add_phase("prefill", prefill_[slowest_], static_cast<double>(plan_.parts()), time_.first_token_s);
    const auto rounds = static_cast<double>(work_.new_tokens - 1);
    add_phase("decode", decode_[slowest_], rounds * static_cast<double>(plan_.groups()),
              rounds * time_.token_s);
  }

  void explain_memory() {
    for (const auto& [cause, bytes] : causes()) add_memory(out_, cause, bytes);
    finish_peak(out_);
    out_.peak.device = name_of(fullest_);
    out_.peak.entry = "generate";
    const std::string sequences = plan_.batch == 1 ? "one sequence" : format("{} sequences", plan_.batch);
    out_.peak.what = format("the last of {} new tokens, {} tokens of {} kept", work_.new_tokens,
                            work_.context(), sequences);
  }

  std::vector<std::pair<const char*, int64_t>> causes() const {
    return {{"parameters", memory_.parameters},
            {"caches", memory_.caches},
            {"transient", memory_.transient},
            {"logits", memory_.logits},
            {"reserved", memory_.reserved}};
  }

  // Adjacent blocks of a stage with equal splits.
  void explain_stages(const EntryLayout& layout) {
    std::vector<BlockDecision> few;  // by block of the layout
    for (const BlockDecision& it : explain_blocks(layout))
      if (it.name.find('.') != std::string::npos) few.insert(few.end(), static_cast<size_t>(it.count), it);
    int64_t next = 0;
    for (int32_t stage = 0; stage < plan_.pp; ++stage) {
      std::vector<int32_t> own = prices_.blocks_of(plan_, stage);
      std::erase_if(own, [&](int32_t block) { return block == 0 || block > std::ssize(few); });
      for (size_t i = 0; i < own.size(); ++next) {
        BlockDecision block = few[static_cast<size_t>(own[i]) - 1];
        block.count = 1, block.stage = stage;
        const int64_t first = next;
        const auto is_alike = [&](int32_t other) {
          const BlockDecision& it = few[static_cast<size_t>(other) - 1];
          return it.ops == block.ops && it.parameters == block.parameters;
        };
        while (++i < own.size() && is_alike(own[i])) ++block.count, ++next;
        block.name = format("{}block.{}{}", plan_.pp == 1 ? "" : format("stage {}: ", stage), first,
                            block.count == 1 ? "" : format(" to {}", next));
        out_.blocks.push_back(std::move(block));
      }
    }
  }

  // Parameters and pages; equal ones of several blocks are one entry.
  Status explain_tensors(const ServingProgram& program) {
    const EntryLayout& layout = program.layout;
    TSR_ASSIGN_OR_RETURN(const ServingProfile* const profile,
                         prices_.profile(plan_.tp, false, plan_.group()));
    std::vector<int64_t> times(profile->pages.size(), 0);
    for (int32_t stage = 0; stage < plan_.pp; ++stage)
      for (const int32_t block : prices_.blocks_of(plan_, stage)) ++times[static_cast<size_t>(block)];
    std::map<std::string_view, int64_t> bytes;
    for (const Slot& slot : program.rank.slots) bytes.emplace(slot.name, slot.bytes);
    std::map<std::pair<std::string, std::string>, size_t> known;
    const auto add = [&](TensorId id, std::string type, int64_t held, int64_t count) {
      std::string name = layout.tensor(id).name;
      if (const std::string_view scope = block_scope(name); !scope.empty())
        name = format("{}*{}", scope.substr(0, scope.rfind('.') + 1), name.substr(scope.size()));
      const auto [at, is_new] = known.emplace(std::pair(name, type), out_.tensors.size());
      if (!is_new) {
        out_.tensors[at->second].count += count;
        return;
      }
      ExplainedTensor& it = out_.tensors.emplace_back();
      it.name = std::move(name), it.type = std::move(type), it.tier = "device", it.stage = -1;
      it.kind = layout.tensor(id).kind == TensorKind::kParameter ? "parameter" : "cache";
      it.sharding = to_text(layout.spec[index(id)], layout.mesh);
      it.bytes = held, it.count = count;
    };
    const auto parameters = layout.graph.tensors_of_kind(TensorKind::kParameter);
    const auto block_of = [&](TensorId parameter) -> size_t {
      for (size_t n = 0; n < layout.graph.nodes().size(); ++n)
        if (std::ranges::count(layout.graph.nodes()[n].inputs, parameter) > 0)
          return static_cast<size_t>(profile->step.map.of_node[n]);
      return 0;
    };
    for (const TensorId id : parameters)
      add(id, to_text(layout.whole_type(id)), bytes[layout.tensor(id).name], times[block_of(id)]);
    for (size_t block = 0; block < profile->pages.size(); ++block)
      for (const PositionBytes& pages : profile->pages[block]) {
        const int64_t positions = prices_.cached_positions(plan_, pages.window),
                      page = usual_page_size(work_.context());
        for (const TensorId state : pages.states) {
          TensorType type = layout.whole_type(state);
          const int64_t held = bytes[layout.tensor(state).name] / (type.shape[0] * type.shape[1]) * positions;
          type.shape.set(0, positions / page);
          type.shape.set(1, page);
          add(state, to_text(type), held, times[block]);
        }
      }
    return {};
  }

  void explain_runners_up() {
    const auto add = [&](const GenerationPlan& plan, const GenerationTime& time, std::string why) {
      RunnerUp& other = add_runner_up(out_, to_text(plan), time.request_s, time.memory.total(), std::move(why));
      other.tokens_per_s = time.tokens_per_s;
    };
    for (const FoundGeneration& other : found_.runners_up) add(other.plan, other.time, "");
    // Runner-up with one changed decision that does not fit: the cost of the memory limit.
    const auto vary = [&](const char* what, auto change) {
      GenerationPlan plan = plan_;
      change(plan);
      if (plan == plan_) return;
      const Result<GenerationTime> time = prices_.time(plan);
      if (!time.ok()) return;
      if (const int64_t bytes = time->memory.total(); bytes > out_.memory_limit)
        add(plan, *time,
            format("{}: needs {}, the limit is {}", what, bytes_text(bytes), bytes_text(out_.memory_limit)));
      else if (search_.kv_budget > 0 && time->kv_bytes > search_.kv_budget)
        add(plan, *time,
            format("{}: keys and values need {}, their budget is {}", what, bytes_text(time->kv_bytes),
                   bytes_text(search_.kv_budget)));
    };
    if (search_.throughput) vary("twice the sequences", [](GenerationPlan& p) { p.batch *= 2; });
    vary("half the tensor parallelism", [](GenerationPlan& p) { p.tp = std::max(1, p.tp / 2); });
    vary("half the pipeline", [](GenerationPlan& p) { p.pp = std::max(1, p.pp / 2); });
    vary("all prompts at a time", [](GenerationPlan& p) { p.prefill_batch = p.batch; });
  }

  void say(std::string text) { out_.reasons.push_back(std::move(text)); }

  void explain_reasons() {
    const int64_t used = int64_t{plan_.tp} * plan_.pp * plan_.dp;
    if (used < out_.devices)
      say(format("{} of {} devices stay idle: with them no plan found is {}", out_.devices - used,
                 out_.devices, search_.throughput ? "faster" : "sooner done"));
    const GenerationPass& stage = decode_[slowest_];
    const double whole = stage.seconds(), rate = prices_.cluster().kinds[0].memory_bytes_per_s;
    const auto stages = prices_.memory(plan_, plan_.group());
    if (rate > 0 && stages.ok()) {
      const int64_t weights = (*stages)[slowest_].parameters;
      const auto groups = static_cast<double>(plan_.groups());
      say(format("A further token takes {} on {}; to read its {} of weights alone takes {}",
                 short_time_text(groups * whole), out_.critical, bytes_text(weights),
                 short_time_text(groups * static_cast<double>(weights) / rate)));
    }
    if (stage.cache_s > 0.3 * whole)
      say(format("{} of it is reading keys and values: fewer sequences or shorter ones would shorten it",
                 percent(stage.cache_s / whole)));
    if (stage.collective_s + stage.send_s > 0.2 * whole)
      say(format("{} of it is communication", percent((stage.collective_s + stage.send_s) / whole)));
    if (search_.throughput) explain_batch();
    explain_memory_cost();
    explain_other_objective();
  }

  // Explains the limit on sequences.
  void explain_batch() {
    if (search_.batch > 0 || search_.replica_batch) return;
    GenerationPlan more = plan_;
    more.batch += plan_.pp;
    more.prefill_batch = search_.prefill_batch.value_or(1);
    const auto time = prices_.time(more);
    if (time.ok() && time->memory.total() > out_.memory_limit)
      say(format("{} sequences are all that fit next to the weights of a replica: {} more need {} of {}",
                 plan_.batch, plan_.pp, bytes_text(time->memory.total()), bytes_text(out_.memory_limit)));
    else if (time.ok() && search_.kv_budget > 0 && time->kv_bytes > search_.kv_budget)
      say(format("{} sequences of a replica are all that the budget of {} for keys and values allows",
                 plan_.batch, bytes_text(search_.kv_budget)));
    else
      say(
          format("More than {} sequences a replica would fit; none that fits was found to give 0.1 % more "
                 "tokens a second",
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
    say(format("Memory costs {} of the {}: '{}' would be better; {}", percent(gains(*better)),
               search_.throughput ? "throughput" : "request", better->strategy, better->why));
  }

  // The choice for the other objective.
  void explain_other_objective() {
    GenerationOptions other = search_;
    other.throughput = !search_.throughput;
    const auto found = search_generation(prices_, other);
    if (!found.ok() || found->best.plan == plan_) return;
    const GenerationTime& time = found->best.time;
    out_.reasons.push_back(
        format("For {} the best is '{}': {} tokens/s instead of {}, {} a request instead of {}",
               other.throughput ? "throughput" : "latency", to_text(found->best.plan),
               std::llround(time.tokens_per_s), std::llround(time_.tokens_per_s), short_time_text(time.request_s),
               short_time_text(time_.request_s)));
  }

  // Parts of the prompts in sequence; then rounds of all groups, the last
  // beginning where prefill ends, the others earlier, as they were read earlier.
  void draw_timeline() {
    Timeline& timeline = out_.timeline;
    for (int32_t stage = 0; stage < plan_.pp; ++stage)
      timeline.rows.emplace_back(format("stage {}", stage), "compute");
    timeline.causes = {"prefill", "decode"};
    timeline.labels = {format("prefill, {} prompts", plan_.part())};
    const auto stages = static_cast<size_t>(plan_.pp);
    std::vector<double> free(stages, 0.0);
    for (int64_t part = 0; part < plan_.parts(); ++part) {
      double at = 0;
      for (size_t s = 0; s < stages; ++s) {
        at = std::max(at, free[s]);
        const double end = at + prefill_[s].seconds();
        add_span(s, 0, 0, part, at, end);
        at = free[s] = end;
      }
    }
    const double slowest = decode_[slowest_].seconds();
    for (int64_t group = 0; group < plan_.groups(); ++group)
      timeline.labels.push_back(plan_.groups() > 1 ? format("a token of group {}", group)
                                                   : format("a token of {} sequences", plan_.batch));
    for (int64_t token = 1; token < work_.new_tokens && timeline.complete; ++token)
      for (int64_t group = 0; group < plan_.groups(); ++group) {
        double at = time_.first_token_s + static_cast<double>(token - 1) * time_.token_s -
                    static_cast<double>(plan_.groups() - 1 - group) * slowest;
        for (size_t s = 0; s < stages; ++s) {
          const double end = at + decode_[s].seconds();
          if (const double begin = std::max(at, free[s]); begin < end)
            add_span(s, 1, 1 + static_cast<int32_t>(group), token, begin, end);
          at = end;
        }
      }
  }

  void add_span(size_t row, int32_t cause, int32_t label, int64_t number, double begin_s, double end_s) {
    Timeline& timeline = out_.timeline;
    if (timeline.spans.size() >= drawings_.most_spans) {
      timeline.complete = false;
      return;
    }
    timeline.spans.push_back({static_cast<int32_t>(row), cause, label, static_cast<int32_t>(number),
                              nanoseconds(begin_s), nanoseconds(end_s)});
  }

  // Keys and values filling their reserved bytes.
  void draw_curve() {
    MemoryCurve& curve = out_.curve;
    curve.in_time = true;
    auto constant = causes();
    std::erase_if(constant, [](const auto& it) { return it.first == std::string_view("caches") || it.second == 0; });
    for (const auto& [cause, bytes] : constant) curve.causes.emplace_back(cause);
    curve.causes.emplace_back("caches");
    curve.bytes.resize(curve.causes.size());
    const int64_t all = work_.context();
    const auto point = [&](double at_s, double share) {
      curve.position.push_back(nanoseconds(at_s));
      for (size_t c = 0; c < constant.size(); ++c) curve.bytes[c].push_back(constant[c].second);
      curve.bytes.back().push_back(static_cast<int64_t>(share * static_cast<double>(memory_.caches)));
    };
    const double prompts = static_cast<double>(work_.prompt) / static_cast<double>(all);
    const auto most = std::max<int64_t>(4, static_cast<int64_t>(drawings_.most_points));
    const int64_t each_part = (plan_.parts() + most / 2 - 1) / (most / 2);
    for (int64_t part = 0; part < plan_.parts(); part += each_part)
      point(time_.first_token_s * static_cast<double>(part) / static_cast<double>(plan_.parts()),
            prompts * static_cast<double>(part) / static_cast<double>(plan_.parts()));
    const int64_t each_token = (work_.new_tokens + most / 2 - 1) / (most / 2);
    for (int64_t token = 0; token < work_.new_tokens - 1; token += each_token)
      point(time_.first_token_s + static_cast<double>(token) * time_.token_s,
            static_cast<double>(work_.prompt + token + 1) / static_cast<double>(all));
    point(time_.request_s, 1);
  }

  GenerationPrices& prices_;
  const GenerationOptions& search_;
  const GenerationResult& found_;
  const ExplanationDrawings& drawings_;
  const GenerationPlan plan_;
  const GenerationTime time_;
  const GenerationWork work_;
  const GenerationMemory memory_;  // of the fullest stage
  std::vector<GenerationPass> prefill_, decode_;
  size_t fullest_ = 0, slowest_ = 0;
  Explanation out_;
};

}  // namespace

Result<Explanation> explain_generation(GenerationPrices& prices, const GenerationOptions& search,
                                       const GenerationResult& found,
                                       const ExplanationDrawings& drawings) {
  return GenerationExplainer(prices, search, found, drawings).run();
}

}  // namespace tessera

#include "engine/model/described_model.h"
#include "engine/planning/estimate.h"
#include "graph/base/text.h"
#include "graph/models/model_family.h"
#include "parallel/planner/explain.h"
#include "parallel/pricing/reserved_memory.h"
#include "parallel/strategy/strategy.h"
#include "serialize/explanation_json.h"
#include "text/json.h"

namespace tessera {

namespace {

// Reads pinned sizes: the words of --parallel that generation has, and batch=N and prefill=N.
Status read_pins(std::string_view parallel, GenerationOptions& options) {
  std::vector<std::string> words;
  for (const std::string& part : split(parallel, ',')) {
    const std::string_view word = trim(part);
    const size_t equals = word.find('=');
    const std::string_view name = trim(word.substr(0, equals));
    std::optional<int64_t>* size = name == "batch"     ? &options.replica_batch
                                   : name == "prefill" ? &options.prefill_batch
                                                       : nullptr;
    if (size == nullptr) {
      if (!word.empty()) words.emplace_back(word);
      continue;
    }
    const auto value = equals == std::string_view::npos ? std::nullopt : parse_i64(trim(word.substr(equals + 1)));
    if (!value || *value < 1 || *value > INT32_MAX || *size)
      return Status(StatusCode::kInvalidArgument,
                    format("parallel: '{}' where {}=N is wanted once, N from 1 to {}", word, name, INT32_MAX));
    *size = *value;
  }
  TSR_ASSIGN_OR_RETURN(const StrategyPins pins, parse_parallel(join(words, ",")));
  const StrategySpec& spec = pins.spec;
  // Stages take turns with groups of sequences, whatever a schedule of training steps says.
  const auto is_known = [&](std::string_view word) {
    const std::string_view name = trim(word.substr(0, word.find('=')));
    if (name == "tp") return spec.form == TensorForm::k1d;
    if (name == "pp") return spec.pp == 1 || spec.schedule == ScheduleKind::k1F1B;
    return name == "dp" || name == "single";
  };
  for (const std::string& word : words)
    if (!is_known(word))
      return Status(StatusCode::kInvalidArgument,
                    format("parallel: '{}' is not known for generation; wanted tp=N, pp=N, dp=N, batch=N "
                           "(sequences of a replica) or prefill=N (of them, prompts read at a time)",
                           word));
  if (pins.tp) options.tp = spec.tp;
  if (pins.pp) options.pp = spec.pp;
  if (pins.dp) options.dp = spec.dp;
  return {};
}

struct Estimate {
  std::string cluster_text;
  int64_t devices = 0;  // given
  GenerationOptions options;
  std::vector<GenerationPrices> parts;  // of one kind each
  GenerationResult found;
};

Result<Estimate> find_estimate(std::string_view text, const Options& given) {
  OptionReader reader(given, "estimate");
  reader.accept({"mode"});
  Estimate it;
  it.cluster_text = reader.text("cluster");
  const std::string parallel = reader.text("parallel");
  GenerationOptions& options = it.options;
  options.throughput = reader.choice("objective", "latency", {"latency", "throughput"}) == "throughput";
  options.work.prompt = reader.i64("prompt", 512, 1, int64_t{1} << 32);
  options.work.new_tokens = reader.i64("new", 128, 1, int64_t{1} << 32);
  options.batch = reader.i64("batch", 0, 0, int64_t{1} << 32);
  options.memory_limit = reader.bytes("memory_limit", 0);
  options.kv_budget = reader.bytes("kv_budget", 0);
  const std::string dtype = reader.choice("dtype", "bf16", {"bf16", "f16", "f32"});
  options.work.dtype = dtype == "f32" ? DType::kF32 : dtype == "f16" ? DType::kF16 : DType::kBF16;
  if (it.cluster_text.empty())
    reader.fail(Status(StatusCode::kInvalidArgument,
                       "estimate: option 'cluster' is missing; an example: dgx-a100-80gb:512"));
  TSR_RETURN_IF_ERROR(reader.finish());
  TSR_RETURN_IF_ERROR(read_pins(parallel, options));
  TSR_ASSIGN_OR_RETURN(const DescribedModel model, describe_model(text));
  TSR_ASSIGN_OR_RETURN(const ModelConfig config, parse_shorthand(model.description));
  TSR_ASSIGN_OR_RETURN(const Graph forward, build_model(config));
  if (const auto context = config.sizes.find("T"); context != config.sizes.end())
    options.context = context->second;
  TSR_RETURN_IF_ERROR(check_request(options));
  TSR_ASSIGN_OR_RETURN(const auto fleet, open_fleet(it.cluster_text));
  TSR_RETURN_IF_ERROR(check_memory_known(fleet, options.memory_limit));
  it.devices = fleet.devices();
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, options.work.dtype));
  for (const ClusterPart& part : parts.parts) {
    if (part.groups.size() > 1) continue;  // every kind by itself
    TSR_ASSIGN_OR_RETURN(GenerationPrices prices,
                         GenerationPrices::create(forward, part.cluster, options.work));
    it.parts.push_back(std::move(prices));
  }
  TSR_ASSIGN_OR_RETURN(it.found, search_generation(it.parts, options));
  return it;
}

Result<Explanation> explain_estimate(std::string_view description, Estimate& it, bool drawings) {
  TSR_ASSIGN_OR_RETURN(Explanation explanation, explain_generation(it.parts[it.found.part], it.options,
                                                                   it.found, {.wanted = drawings}));
  explanation.subject = std::string(description);
  explanation.cluster = it.cluster_text;
  explanation.devices = it.devices;
  if (!it.found.used.empty())
    explanation.reasons.insert(explanation.reasons.begin(),
                               format("The plan is for {}; idle: {}", it.found.used, it.found.idle));
  return explanation;
}

Json time_object(const FoundGeneration& found) {
  const GenerationTime& time = found.time;
  return {{"parallel", to_text(found.plan)},
          {"time_to_first_token_seconds", time.first_token_s},
          {"time_per_token_seconds", time.token_s},
          {"request_seconds", time.request_s},
          {"tokens_per_second", time.tokens_per_s},
          {"memory_bytes", time.memory.total()},
          {"kv_bytes", time.kv_bytes}};
}

}  // namespace

bool wants_generation(const Options& options) {
  const auto at = options.find("mode");
  if (at == options.end()) return false;
  const std::string* mode = std::get_if<std::string>(&at->second);
  return mode != nullptr && *mode == "generate";
}

Result<std::string> estimate_generation_page(std::string_view description, const Options& given) {
  TSR_ASSIGN_OR_RETURN(Estimate it, find_estimate(description, given));
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(description, it, true));
  return explanation_to_page(explanation);
}

Result<std::string> estimate_generation(std::string_view description, const Options& given) {
  TSR_ASSIGN_OR_RETURN(Estimate it, find_estimate(description, given));
  const GenerationResult& found = it.found;
  const GenerationPrices& prices = it.parts[found.part];
  Json report = {{"mode", "generate"},
                 {"objective", it.options.throughput ? "throughput" : "latency"},
                 {"model", std::string(description)},
                 {"parameters", prices.parameters()},
                 {"cluster", it.cluster_text},
                 {"devices", it.devices},
                 {"prompt", it.options.work.prompt},
                 {"new", it.options.work.new_tokens},
                 {"reserved_bytes", reserved_bytes(prices.cluster().kinds[0])}};
  report.update(time_object(found.best));
  if (!found.used.empty()) report["kinds"] = Json::array({{{"used", found.used}, {"idle", found.idle}}});
  report["weight_bytes"] = found.best.time.memory.parameters;
  report["prefill_batch"] = found.best.plan.prefill_batch;
  report["token_seconds"] = {{"weights", found.best.time.weights_s},
                             {"cache", found.best.time.cache_s},
                             {"communication", found.best.time.communication_s}};
  report["bound"] = found.bound;
  report["gap"] = found.gap;
  report["search"] = {{"meshes", found.meshes}, {"priced", found.priced}};
  report["candidates"] = Json::array();
  for (const FoundGeneration& other : found.runners_up) report["candidates"].push_back(time_object(other));
  TSR_ASSIGN_OR_RETURN(const Explanation explanation, explain_estimate(description, it, false));
  report["explanation"] = Json::parse(explanation_to_json(explanation));
  return dump(report);
}

}  // namespace tessera

#include "parallel/analytic/generate_time.h"

#include <algorithm>
#include <span>
#include <utility>

#include "graph/base/text.h"
#include "parallel/analytic/block_time.h"
#include "parallel/pricing/reserved_memory.h"

namespace tessera {

namespace {

double bytes_of(DType dtype) {
  return static_cast<double>(info(dtype).block_bytes) / info(dtype).block_elements;
}

// The model as one pass sees it: `tokens` of each sequence, nothing dropped.
TransformerShape seen(TransformerShape model, int64_t tokens) {
  model.T = tokens;
  model.dropout = 0;
  return model;
}

ForeignPlan pass_plan(const GeneratePlan& plan, const GenerateWork& work, int64_t sequences) {
  ForeignPlan pass;
  pass.tp = plan.tp, pass.pp = plan.pp, pass.dp = plan.dp;
  pass.micro_batch = sequences;
  pass.compute_dtype = work.dtype;
  return pass;
}

int64_t blocks_of(const TransformerShape& model, const GeneratePlan& plan, int32_t stage) {
  return model.L / plan.pp + (stage < model.L % plan.pp ? 1 : 0);
}

// Keys and values of one token in one block, on one device; heads fewer than parts are on several.
double token_cache_bytes(const TransformerShape& model, const GenerateWork& work, int32_t tp) {
  const double heads = std::max(1.0, static_cast<double>(model.KV) / tp);
  return 2 * heads * static_cast<double>(model.head_size()) * bytes_of(work.dtype);
}

// One forward pass of `sequences` with `tokens` each, by stage; `cache_s`: reading what came before, of one
// block.
std::vector<StagePass> forward(const TransformerShape& model, const Cluster& cluster,
                               const GenerateWork& work, const GeneratePlan& plan, int64_t sequences,
                               int64_t tokens, double cache_s) {
  const ForeignPlan pass = pass_plan(plan, work, sequences);
  const Pass block = block_time(seen(model, tokens), pass, cluster).forward;
  const Pass first = embedding_time(seen(model, tokens), pass, cluster).forward;
  const Pass last = head_time(seen(model, 1), pass, cluster).forward;  // the last token's logits
  const double send =
      plan.pp > 1 ? send_seconds(cluster, plan.tp,
                                 static_cast<double>(sequences * tokens * model.C) * bytes_of(work.dtype))
                  : 0;
  std::vector<StagePass> stages(static_cast<size_t>(plan.pp));
  for (int32_t s = 0; s < plan.pp; ++s) {
    StagePass& stage = stages[static_cast<size_t>(s)];
    const auto blocks = static_cast<double>(blocks_of(model, plan, s));
    stage = {blocks * block.compute_s, blocks * cache_s, blocks * block.collective_s, 0};
    if (s == 0) stage.compute_s += first.compute_s, stage.collective_s += first.collective_s;
    if (s + 1 == plan.pp) stage.compute_s += last.compute_s, stage.collective_s += last.collective_s;
    if (s + 1 < plan.pp) stage.send_s = send;
  }
  return stages;
}

// Of all stages, one after the other; of the slowest.
std::pair<double, double> all_and_slowest(std::span<const StagePass> stages) {
  double all = 0, slowest = 0;
  for (const StagePass& stage : stages) {
    all += stage.seconds();
    slowest = std::max(slowest, stage.seconds());
  }
  return {all, slowest};
}

}  // namespace

GeneratePasses generate_passes(const TransformerShape& model, const Cluster& cluster,
                               const GenerateWork& work, const GeneratePlan& plan) {
  GeneratePasses passes;
  const int64_t part = std::min(plan.prefill_batch, plan.batch);
  passes.parts = (plan.batch + part - 1) / part;
  passes.prefill = forward(model, cluster, work, plan, part, work.prompt, 0);
  // The cache grows by a token each time; what it costs is linear, so the average is that of the middle.
  const int64_t group = (plan.batch + plan.pp - 1) / plan.pp;
  const double read = static_cast<double>(work.prompt) + static_cast<double>(work.new_tokens) / 2;
  const double rate = cluster.kinds[0].memory_bytes_per_s;
  const double cache =
      rate > 0 ? static_cast<double>(group) * read * token_cache_bytes(model, work, plan.tp) / rate : 0;
  passes.decode = forward(model, cluster, work, plan, group, 1, cache);
  passes.groups = std::min<int64_t>(plan.pp, plan.batch);
  return passes;
}

GenerateMemory generate_memory(const TransformerShape& model, const DeviceKind& kind,
                               const GenerateWork& work, const GeneratePlan& plan, int32_t stage) {
  const double e = bytes_of(work.dtype);
  const int64_t blocks = blocks_of(model, plan, stage);
  const bool first = stage == 0, last = stage + 1 == plan.pp;
  const int64_t weights = plan.pp == 1 ? model.parameters()
                                       : blocks * model.block_parameters() +
                                             (first ? model.embedding_parameters() : 0) +
                                             (last ? model.head_parameters() : 0);
  const auto part = static_cast<double>(std::min(plan.prefill_batch, plan.batch));
  // Prompts at work: residual and normed stream whole, the widest product's operand and result in parts.
  const double widest =
      static_cast<double>(std::max(2 * model.mixed_width(), (model.gated ? 3 : 2) * model.F)) / plan.tp;
  GenerateMemory memory;
  memory.parameters = static_cast<int64_t>(static_cast<double>(weights) / plan.tp * e);
  memory.caches =
      static_cast<int64_t>(static_cast<double>(plan.batch * (work.prompt + work.new_tokens) * blocks) *
                           token_cache_bytes(model, work, plan.tp));
  memory.transient = static_cast<int64_t>(part * static_cast<double>(work.prompt) *
                                          (3 * static_cast<double>(model.C) + widest) * e);
  if (last) memory.logits = static_cast<int64_t>(static_cast<double>(plan.batch * model.V) / plan.tp * 4);
  memory.reserved = reserved_bytes(kind);
  return memory;
}

int32_t fullest_stage(const TransformerShape& model, const DeviceKind& kind, const GenerateWork& work,
                      const GeneratePlan& plan) {
  // The first has the most blocks and the embedding, the last the head; those between hold less than the
  // first.
  const int32_t last = plan.pp - 1;
  return generate_memory(model, kind, work, plan, last).total() >
                 generate_memory(model, kind, work, plan, 0).total()
             ? last
             : 0;
}

GenerateTime generate_time(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
                           const GeneratePlan& plan) {
  GenerateTime time;
  const GeneratePasses passes = generate_passes(model, cluster, work, plan);
  const auto [prompts, slowest_prompt] = all_and_slowest(passes.prefill);
  time.first_token_s = prompts + static_cast<double>(passes.parts - 1) * slowest_prompt;
  const auto [token, slowest_token] = all_and_slowest(passes.decode);
  time.token_s = std::max(token, static_cast<double>(passes.groups) * slowest_token);
  for (const StagePass& stage : passes.decode) {
    time.cache_s += stage.cache_s;
    time.communication_s += stage.collective_s + stage.send_s;
    time.weights_s += stage.compute_s;
  }
  time.request_s = time.first_token_s + static_cast<double>(work.new_tokens - 1) * time.token_s;
  time.tokens_per_s = static_cast<double>(plan.dp * plan.batch * work.new_tokens) / time.request_s;

  const DeviceKind& kind = cluster.kinds[0];
  const GenerateMemory memory =
      generate_memory(model, kind, work, plan, fullest_stage(model, kind, work, plan));
  time.weight_bytes = memory.parameters;
  time.kv_bytes = generate_memory(model, kind, work, plan, 0).caches;
  time.memory_bytes = memory.total();
  return time;
}

Status check_generate_plan(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
                           const GeneratePlan& plan) {
  const auto refuse = [](std::string message) {
    return Status(StatusCode::kInvalidArgument, std::move(message));
  };
  const auto devices = static_cast<int64_t>(cluster.devices.size());
  if (int64_t{plan.tp} * plan.pp * plan.dp > devices)
    return refuse(format("{} uses {} devices, the cluster has {}", to_text(plan),
                         int64_t{plan.tp} * plan.pp * plan.dp, devices));
  if (model.H % plan.tp != 0)
    return refuse(format("H = {} heads do not divide into tp={} parts", model.H, plan.tp));
  if (model.KV % plan.tp != 0 && plan.tp % model.KV != 0)
    return refuse(format("KV = {} heads and tp={} parts: one should divide the other", model.KV, plan.tp));
  if (plan.pp > model.L)
    return refuse(format("pp={} cuts L = {} blocks into more parts than there are", plan.pp, model.L));
  if (plan.batch < 1 || plan.prefill_batch < 1)
    return refuse(format("found {} sequences, {} prompts at a time; wanted one or more of both", plan.batch,
                         plan.prefill_batch));
  if (work.prompt < 1 || work.new_tokens < 1 || work.prompt + work.new_tokens > model.T)
    return refuse(format("a prompt of {} and {} new tokens make {}, the model's context is T = {}",
                         work.prompt, work.new_tokens, work.prompt + work.new_tokens, model.T));
  return {};
}

std::string to_text(const GeneratePlan& plan) {
  return format("tp={},pp={},dp={},batch={}{}", plan.tp, plan.pp, plan.dp, plan.batch,
                plan.prefill_batch > 1 ? format(",prefill={}", plan.prefill_batch) : std::string());
}

}  // namespace tessera

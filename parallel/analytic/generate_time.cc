#include "parallel/analytic/generate_time.h"

#include <algorithm>

#include "graph/base/text.h"
#include "parallel/analytic/block_time.h"

namespace tessera {

namespace {

constexpr int64_t kReserved = int64_t{3} << 30;  // context, communicators, workspaces of one device

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

// Keys and values of one token in one block, on one device; heads fewer than parts are on several.
double token_cache_bytes(const TransformerShape& model, const GenerateWork& work, int32_t tp) {
  const double heads = std::max(1.0, static_cast<double>(model.KV) / tp);
  return 2 * heads * static_cast<double>(model.C / model.H) * bytes_of(work.dtype);
}

struct Passes {
  double stages_s = 0;   // of all stages, one after the other, with sends between
  double slowest_s = 0;  // stage
  double communication_s = 0;
};

// One forward pass of `sequences` with `tokens` each through all stages; `cache_s`: reading what came before,
// of one block.
Passes forward(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
               const GeneratePlan& plan, int64_t sequences, int64_t tokens, double cache_s) {
  const ForeignPlan pass = pass_plan(plan, work, sequences);
  const auto both = [](const Pass& p) { return p.compute_s + p.collective_s; };
  const Pass block = block_time(seen(model, tokens), pass, cluster).forward;
  const Pass first = embedding_time(seen(model, tokens), pass, cluster).forward;
  const Pass last = head_time(seen(model, 1), pass, cluster).forward;  // the last token's logits
  const double send =
      plan.pp > 1 ? send_seconds(cluster, plan.tp,
                                 static_cast<double>(sequences * tokens * model.C) * bytes_of(work.dtype))
                  : 0;
  Passes passes;
  passes.communication_s = static_cast<double>(model.L) * block.collective_s + first.collective_s +
                           last.collective_s + (plan.pp - 1) * send;
  for (int32_t stage = 0; stage < plan.pp; ++stage) {
    const int64_t blocks = model.L / plan.pp + (stage < model.L % plan.pp ? 1 : 0);
    double seconds = static_cast<double>(blocks) * (both(block) + cache_s);
    if (stage == 0) seconds += both(first);
    if (stage + 1 == plan.pp) seconds += both(last);
    if (stage + 1 < plan.pp) seconds += send;
    passes.stages_s += seconds;
    passes.slowest_s = std::max(passes.slowest_s, seconds);
  }
  return passes;
}

}  // namespace

GenerateTime generate_time(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
                           const GeneratePlan& plan) {
  GenerateTime time;
  const int64_t part = std::min(plan.prefill_batch, plan.batch), parts = (plan.batch + part - 1) / part;
  const Passes prompts = forward(model, cluster, work, plan, part, work.prompt, 0);
  time.first_token_s = prompts.stages_s + static_cast<double>(parts - 1) * prompts.slowest_s;

  // The cache grows by a token each time; what it costs is linear, so the average is that of the middle.
  const int64_t group = (plan.batch + plan.pp - 1) / plan.pp;
  const double read = static_cast<double>(work.prompt) + static_cast<double>(work.new_tokens) / 2;
  const double token_bytes = token_cache_bytes(model, work, plan.tp);
  const double rate = cluster.kinds[0].memory_bytes_per_s;
  const double cache = rate > 0 ? static_cast<double>(group) * read * token_bytes / rate : 0;
  const Passes token = forward(model, cluster, work, plan, group, 1, cache);
  const int64_t groups = std::min<int64_t>(plan.pp, plan.batch);
  time.token_s = std::max(token.stages_s, static_cast<double>(groups) * token.slowest_s);
  time.cache_s = static_cast<double>(model.L) * cache;
  time.communication_s = token.communication_s;
  time.weights_s = token.stages_s - time.cache_s - time.communication_s;
  time.request_s = time.first_token_s + static_cast<double>(work.new_tokens - 1) * time.token_s;
  time.tokens_per_s = static_cast<double>(plan.dp * plan.batch * work.new_tokens) / time.request_s;

  const int64_t blocks = (model.L + plan.pp - 1) / plan.pp;
  const double e = bytes_of(work.dtype);
  const int64_t table = std::max(model.embedding_parameters(), model.head_parameters());
  const auto weights =
      static_cast<double>(plan.pp == 1 ? model.parameters() : blocks * model.block_parameters() + table);
  time.weight_bytes = static_cast<int64_t>(weights / plan.tp * e);
  time.kv_bytes = static_cast<int64_t>(
      static_cast<double>(plan.batch * (work.prompt + work.new_tokens) * blocks) * token_bytes);
  // Prompts at work: residual and normed stream whole, the widest product's operand and result in parts.
  const double widest = static_cast<double>(std::max(2 * model.C, (model.gated ? 3 : 2) * model.F)) / plan.tp;
  const double working =
      static_cast<double>(part * work.prompt) * (3 * static_cast<double>(model.C) + widest) * e +
      static_cast<double>(plan.batch * model.V) / plan.tp * 4;
  time.memory_bytes = kReserved + time.weight_bytes + time.kv_bytes + static_cast<int64_t>(working);
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
  return format("tp={},pp={},dp={},batch={}", plan.tp, plan.pp, plan.dp, plan.batch);
}

}  // namespace tessera

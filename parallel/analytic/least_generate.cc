#include "parallel/analytic/least_generate.h"

#include <algorithm>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

// The emptiest plans: one prompt at a time, as few sequences a replica as the pins and the batch allow.
// `use(plan)` is called for one of each mesh with at most `devices` devices.
template <class Use>
void emptiest_plans(const TransformerShape& model, int32_t devices, const GenerateOptions& options, Use use) {
  const int64_t all = options.batch > 0 ? options.batch : options.throughput ? 0 : 1;
  for (const int32_t tp : divisors(model.H)) {
    if (tp > devices || (options.tp && *options.tp != tp) || (model.KV % tp != 0 && tp % model.KV != 0))
      continue;
    for (int32_t pp = 1; pp <= std::min<int64_t>(devices / tp, model.L); ++pp) {
      if (options.pp && *options.pp != pp) continue;
      const int32_t most = devices / tp / pp;
      GeneratePlan plan{tp, pp, options.dp.value_or(1), options.replica_batch.value_or(1),
                        options.prefill_batch.value_or(1)};
      if (options.replica_batch) {
        if (options.batch > 0) {
          if (options.batch % plan.batch != 0) continue;
          plan.dp = static_cast<int32_t>(std::min<int64_t>(options.batch / plan.batch, INT32_MAX));
          if (options.dp && *options.dp != plan.dp) continue;
        }
        if (plan.dp <= most) use(plan);
        continue;
      }
      if (all == 0) {
        if (plan.dp <= most) use(plan);
        continue;
      }
      for (const int32_t dp : divisors(all)) {
        if (dp > most || (options.dp && *options.dp != dp)) continue;
        plan.dp = dp, plan.batch = all / dp;
        use(plan);
      }
    }
  }
}

int64_t bytes_with(const TransformerShape& model, const DeviceKind& kind, const GenerateWork& work,
                   const GeneratePlan& plan) {
  return generate_memory(model, kind, work, plan, fullest_stage(model, kind, work, plan)).total();
}

bool keeps_budget(const TransformerShape& model, const DeviceKind& kind, const GenerateOptions& options,
                  const GeneratePlan& plan) {
  return options.kv_budget == 0 ||
         generate_memory(model, kind, options.work, plan, 0).caches <= options.kv_budget;
}

std::string peak_text(const TransformerShape& model, const DeviceKind& kind, const GenerateWork& work,
                      const GeneratePlan& plan) {
  const int32_t stage = fullest_stage(model, kind, work, plan);
  const GenerateMemory memory = generate_memory(model, kind, work, plan, stage);
  std::vector<std::pair<int64_t, std::string>> parts = {
      {memory.parameters, "weights"},
      {memory.caches, format("keys and values of {} x {} tokens", plan.batch, work.prompt + work.new_tokens)},
      {memory.transient, "prompts at work"},
      {memory.logits, "logits"},
      {memory.reserved, "contexts and communicators"}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<int64_t, std::string>::first);
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : parts)
    if (bytes > 0) texts.push_back(format("{} {}", name, bytes_text(bytes)));
  return format("Its peak: stage {}, at the last new token: {}.", stage, join(texts, ", "));
}

}  // namespace

LeastGenerate least_generate(const TransformerShape& model, const DeviceKind& kind, int32_t devices,
                             const GenerateOptions& options) {
  LeastGenerate least;
  emptiest_plans(model, devices, options, [&](const GeneratePlan& plan) {
    if (!keeps_budget(model, kind, options, plan)) return;
    const int64_t bytes = bytes_with(model, kind, options.work, plan);
    if (bytes < least.bytes) least = {bytes, plan};
  });
  return least;
}

FewestGenerate fewest_generate(const TransformerShape& model, const DeviceKind& kind, int64_t limit,
                               const GenerateOptions& options) {
  FewestGenerate fewest;
  const int64_t replicas = std::max<int64_t>({1, options.batch, options.dp.value_or(1)});
  const int64_t most = std::min<int64_t>(model.H * model.L * replicas, int64_t{1} << 20);
  emptiest_plans(model, static_cast<int32_t>(most), options, [&](const GeneratePlan& plan) {
    const int64_t devices = int64_t{plan.tp} * plan.pp * plan.dp;
    if (fewest.devices > 0 && devices >= fewest.devices) return;
    if (!keeps_budget(model, kind, options, plan) || bytes_with(model, kind, options.work, plan) > limit)
      return;
    fewest = {static_cast<int32_t>(devices), plan};
  });
  return fewest;
}

Status nothing_fits_generate(const TransformerShape& model, const Cluster& cluster,
                             const GenerateOptions& options) {
  const DeviceKind& kind = cluster.kinds[0];
  const auto devices = static_cast<int32_t>(cluster.devices.size());
  const int64_t limit = options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes;
  const LeastGenerate least = least_generate(model, kind, devices, options);
  const FewestGenerate fewest = fewest_generate(model, kind, limit, options);
  const std::string more = fewest.devices > devices
                               ? format("The smallest number of devices that would do is {}, with '{}'",
                                        fewest.devices, to_text(fewest.plan))
                               : "No number of devices would do";
  if (least.bytes < INT64_MAX)
    return Status(StatusCode::kOutOfMemory,
                  format("no plan fits {} a device; the smallest limit that works is {} ({} bytes) with "
                         "'{}'. {} {}",
                         bytes_text(limit), bytes_text(least.bytes), least.bytes, to_text(least.plan),
                         peak_text(model, kind, options.work, least.plan), more));
  // Only the budget can be in the way of all.
  GenerateOptions free = options;
  free.kv_budget = 0;
  int64_t budget = INT64_MAX;
  GeneratePlan smallest;
  emptiest_plans(model, devices, free, [&](const GeneratePlan& plan) {
    const int64_t bytes = generate_memory(model, kind, options.work, plan, 0).caches;
    if (bytes < budget) budget = bytes, smallest = plan;
  });
  if (budget == INT64_MAX)
    return Status(StatusCode::kInvalidArgument,
                  format("no plan has the pinned batch and replicas on {} devices", devices));
  return Status(
      StatusCode::kOutOfMemory,
      format("no plan keeps keys and values within {} a device; the smallest budget that works is {} "
             "({} bytes) with '{}'. {}",
             bytes_text(options.kv_budget), bytes_text(budget), budget, to_text(smallest), more));
}

}  // namespace tessera

#include "parallel/planner/generation_refusal.h"

#include <algorithm>
#include <functional>
#include <utility>

#include "graph/base/text.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

int64_t node_of(const Cluster& cluster, int64_t devices) {
  return cluster.node_devices > 0 ? cluster.node_devices : devices;
}

// The smallest device count with room for `stages`.
int64_t devices_for(const Cluster& cluster, int64_t stages, int32_t tp) {
  const int64_t node = node_of(cluster, stages * tp);
  if (tp > node) return (tp + node - 1) / node * node * stages;
  const int64_t full = node / tp;
  return stages / full * node + stages % full * tp;
}

// The plans of the space with least memory: of every mesh and
// replica count, with the fewest sequences and one prompt at a time.
void for_smallest_plans(GenerationPrices& prices, const GenerationOptions& options,
                        const std::function<int64_t(int32_t)>& most_stages,
                        const std::function<void(const GenerationPlan&)>& use) {
  const bool any = options.throughput && options.batch == 0;
  for (const int32_t tp : prices.tensor_sizes()) {
    const int64_t stages = most_stages(tp);
    if (stages == 0 || (options.tp && *options.tp != tp) || !prices.profile(tp, false, 1).ok()) continue;
    for (int32_t pp = 1; pp <= std::min<int64_t>(stages, prices.blocks()); ++pp) {
      if (options.pp && *options.pp != pp) continue;
      const int64_t most = stages / pp;
      const auto use_with = [&](int64_t dp, int64_t batch) {
        if (dp <= most && (!options.dp || *options.dp == dp))
          use({tp, pp, static_cast<int32_t>(dp), batch, options.prefill_batch.value_or(1)});
      };
      const int64_t all = std::max<int64_t>(1, options.batch),
                    each = options.replica_batch.value_or(any ? 1 : 0);
      if (each == 0)
        for (const int32_t dp : divisors(all)) use_with(dp, all / dp);
      else if (options.batch == 0)
        use_with(options.dp.value_or(1), each);
      else if (options.batch % each == 0)
        use_with(options.batch / each, each);
    }
  }
}

struct Fullest {
  int64_t bytes = INT64_MAX, caches = INT64_MAX;
  int32_t stage = 0;
  GenerationMemory memory;
};

Fullest fullest_of(GenerationPrices& prices, const GenerationPlan& plan) {
  Fullest fullest;
  const auto stages = prices.memory(plan, plan.group());
  if (!stages.ok()) return fullest;
  fullest = {0, 0, 0, {}};
  for (size_t s = 0; s < stages->size(); ++s) {
    const GenerationMemory& memory = (*stages)[s];
    fullest.caches = std::max(fullest.caches, memory.caches);
    if (memory.total() > fullest.bytes)
      fullest.bytes = memory.total(), fullest.stage = static_cast<int32_t>(s), fullest.memory = memory;
  }
  return fullest;
}

std::string peak_text(const Fullest& fullest, const GenerationPlan& plan, const GenerationWork& work) {
  const GenerationMemory& memory = fullest.memory;
  std::vector<std::pair<int64_t, std::string>> parts = {
      {memory.parameters, "weights"},
      {memory.caches, format("keys and values of {} x {} tokens", plan.batch, work.context())},
      {memory.transient, "prompts at work"},
      {memory.logits, "logits"},
      {memory.reserved, "contexts and communicators"}};
  std::ranges::stable_sort(parts, std::greater(), &std::pair<int64_t, std::string>::first);
  std::vector<std::string> texts;
  for (const auto& [bytes, name] : parts)
    if (bytes > 0) texts.push_back(format("{} {}", name, bytes_text(bytes)));
  return format("Its peak: stage {}, at the last new token: {}.", fullest.stage, join(texts, ", "));
}

}  // namespace

int64_t count_stages(const Cluster& cluster, int64_t devices, int32_t tp) {
  const int64_t node = node_of(cluster, devices);
  if (tp > node) return devices / ((tp + node - 1) / node * node);
  return devices / node * (node / tp) + devices % node / tp;
}

Status refuse_generation(GenerationPrices& prices, const GenerationOptions& options) {
  const Cluster& cluster = prices.cluster();
  const int64_t devices = std::ssize(cluster.devices), limit = options.limit(cluster);
  Fullest least;
  GenerationPlan plan, smallest;
  int64_t budget = INT64_MAX;
  for_smallest_plans(
      prices, options, [&](int32_t tp) { return count_stages(cluster, devices, tp); },
      [&](const GenerationPlan& it) {
        const Fullest fullest = fullest_of(prices, it);
        if (fullest.caches < budget) budget = fullest.caches, smallest = it;
        if ((options.kv_budget == 0 || fullest.caches <= options.kv_budget) && fullest.bytes < least.bytes)
          least = fullest, plan = it;
      });
  if (budget == INT64_MAX)
    return Status(StatusCode::kInvalidArgument,
                  format("no plan has the pinned batch and replicas on {} devices", devices));
  if (least.bytes == INT64_MAX)  // only the budget can exclude all plans
    return Status(
        StatusCode::kOutOfMemory,
        format("no plan keeps keys and values within {} a device; the smallest budget that works is {} "
               "({} bytes) with '{}'. {}",
               bytes_text(options.kv_budget), bytes_text(budget), budget, to_text(smallest),
               "Fewer sequences or shorter ones need less"));
  int64_t fewest = INT64_MAX;
  GenerationPlan fewer;
  const int64_t replicas = std::max<int64_t>({1, options.batch, options.dp.value_or(1)});
  for_smallest_plans(
      prices, options, [&](int32_t) { return replicas * prices.blocks(); },
      [&](const GenerationPlan& it) {
        const int64_t needs = devices_for(cluster, int64_t{it.pp} * it.dp, it.tp);
        if (needs >= fewest) return;
        const Fullest fullest = fullest_of(prices, it);
        if (fullest.bytes <= limit && (options.kv_budget == 0 || fullest.caches <= options.kv_budget))
          fewest = needs, fewer = it;
      });
  const std::string more =
      fewest < INT64_MAX
          ? format("The smallest number of devices that would do is {}, with '{}'", fewest, to_text(fewer))
          : "No number of devices would do";
  return Status(
      StatusCode::kOutOfMemory,
      format("no plan fits {} a device; the smallest limit that works is {} ({} bytes) with '{}'. {} {}",
             bytes_text(limit), bytes_text(least.bytes), least.bytes, to_text(plan),
             peak_text(least, plan, options.work), more));
}

}  // namespace tessera

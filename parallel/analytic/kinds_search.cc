#include "parallel/analytic/kinds_search.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/base/text.h"
#include "parallel/analytic/explain_step.h"
#include "parallel/analytic/fp8_linears.h"
#include "parallel/analytic/least_generate.h"
#include "parallel/analytic/memory_floor.h"
#include "parallel/analytic/mixed_search.h"

namespace tessera {

namespace {

// Nothing to choose, but perhaps several clusters of the same kind, or a kind that is not listed first.
template <class T>
Result<T> of_one(const Fleet& fleet, const ClusterParts& parts, Result<T> found) {
  if (found.ok() && !(parts.parts[0].cluster == fleet.clusters[0])) found->part = parts.parts[0].cluster;
  return found;
}

KindChoice choice_of(const ClusterParts& parts, const ClusterPart& part) {
  std::vector<size_t> idle;
  for (size_t g = 0; g < parts.groups.size(); ++g)
    if (std::ranges::find(part.groups, g) == part.groups.end()) idle.push_back(g);
  return {groups_text(parts, part.groups), groups_text(parts, idle), INFINITY, INFINITY};
}

// Tiles fill the devices of one kind where they leave some of another idle, so that now and then a kind that
// is faster with large products takes longer: a plan takes as long as with the slowest of all kinds.
void price_by_slowest(const TransformerShape& model, const ClusterPart& part, int64_t batch,
                      FoundStep& found) {
  if (part.members.size() < 2) return;
  for (const DeviceKind& kind : part.members) {
    Cluster alone = part.cluster;
    alone.kinds = {kind};
    const auto time = step_time(model, found.plan, alone, batch, found.stages);
    if (time.ok() && time->step_s > found.time.step_s) found.time = *time;
  }
}

void price_by_slowest(const TransformerShape& model, const ClusterPart& part, const GenerateOptions& options,
                      FoundGenerate& found) {
  if (part.members.size() < 2) return;
  for (const DeviceKind& kind : part.members) {
    Cluster alone = part.cluster;
    alone.kinds = {kind};
    const GenerateTime time = generate_time(model, alone, options.work, found.plan);
    if (options.throughput ? time.tokens_per_s < found.time.tokens_per_s
                           : time.request_s > found.time.request_s)
      found.time = time;
  }
}

// Pipelines over several kinds, where they are faster than what was found.
void take_mixed(const TransformerShape& model, const ClusterParts& parts, const StepSearchOptions& options,
                std::optional<StepSearchResult>& best, std::vector<KindChoice>& choices, size_t& chosen) {
  MixedSearchResult mixed =
      search_mixed(model, parts, options, best ? best->best.time.step_s : options.most_s);
  if (!mixed.best) {
    if (std::isfinite(mixed.bound_s))
      choices.push_back({"pipelines over several kinds", "", INFINITY, mixed.bound_s});
    return;
  }
  const ForeignPlan& plan = mixed.best->plan;
  std::vector<std::string> used;
  std::vector<size_t> idle;
  for (size_t g = 0; g < parts.groups.size(); ++g)
    if (std::ranges::find(mixed.groups, g) == mixed.groups.end()) idle.push_back(g);
  for (size_t k = 0; k < mixed.groups.size(); ++k) {
    const DeviceGroup& group = parts.groups[mixed.groups[k]];
    int64_t stages = 0, blocks = 0;
    for (size_t s = 0; s < mixed.kinds.of_stage.size(); ++s)
      if (mixed.kinds.of_stage[s] == k) ++stages, blocks += mixed.best->stages[s].blocks;
    used.push_back(format("{} of {} {} ({} stage{}, {} blocks)", stages * plan.tp * plan.replicas(),
                          group.devices, group.name, stages, stages == 1 ? "" : "s", blocks));
  }
  const auto fullest = static_cast<size_t>(std::ranges::max_element(mixed.best->memory_bytes) -
                                           mixed.best->memory_bytes.begin());
  chosen = choices.size();
  choices.push_back(
      {join(used, ", then "), groups_text(parts, idle), mixed.best->time.step_s, mixed.bound_s});
  StepSearchResult result;
  if (best) {
    result = std::move(*best);
    if (std::isfinite(result.best.time.step_s))
      result.runners_up.insert(result.runners_up.begin(), result.best);
    if (result.runners_up.size() > options.runners_up) result.runners_up.resize(options.runners_up);
  }
  result.best = std::move(*mixed.best);
  result.configurations += mixed.configurations, result.solved += mixed.solved;
  result.closed_by_bound += mixed.configurations - mixed.solved;
  result.part = mixed.kinds.kinds[mixed.kinds.of_stage[fullest]];
  result.stage_kinds = std::move(mixed.kinds);
  best = std::move(result);
}

// What would do, of the choice that needs least; and the fewest devices of all.
Status no_kinds_fit(const TransformerShape& model, const ClusterParts& parts,
                    const StepSearchOptions& options) {
  const ClusterPart* smallest = nullptr;
  int64_t least = INT64_MAX;
  for (const ClusterPart& part : parts.parts) {
    const int64_t bytes = least_limit(model, part.cluster, options, least).bytes;
    if (bytes < least) least = bytes, smallest = &part;
  }
  if (smallest == nullptr)
    return Status(StatusCode::kOutOfMemory, "no plan fits, whichever kinds are used and whatever the limit");
  std::optional<FewestDevices> fewest;
  const ClusterPart* of = nullptr;
  for (const ClusterPart& part : parts.parts) {
    const auto given = static_cast<int32_t>(part.cluster.devices.size());
    int32_t most = std::clamp(8 * given, 64, std::max(64, given + 4096));
    if (fewest) most = std::min(most, fewest->devices - 1);
    if (most <= given) continue;
    if (auto found = fewest_devices_for(model, part.cluster, options, most)) fewest = found, of = &part;
  }
  std::string more = "; more devices of these kinds would not do either";
  if (fewest)
    more = format("; the smallest number of devices that would do is {}, each a {} or better",
                  fewest->devices, of->cluster.kinds[0].name);
  return Status(
      StatusCode::kOutOfMemory,
      format(
          "no plan fits, whichever kinds are used{}. The least memory is needed on {}, all stages alike: {}",
          more, groups_text(parts, smallest->groups),
          nothing_fits(model, smallest->cluster, options).message()));
}

// Where closed forms do not tell that nothing fits.
Result<StepSearchResult> search_part(const TransformerShape& model, const ClusterPart& part,
                                     const StepSearchOptions& options) {
  if (std::isinf(options.most_s))
    if (const auto too_large = surely_too_large(model, part.cluster, options)) {
      if (!options.advise) return *too_large;
      // Advice is of the narrower space, which may have no plan for other reasons.
      if (!step_space(model, part.cluster, options).empty())
        return nothing_fits(model, part.cluster, options);
    }
  return search_step(model, part.cluster, options);
}

}  // namespace

Result<LeastLimit> least_limit(const TransformerShape& model, const Fleet& fleet,
                               const StepSearchOptions& options, int64_t below) {
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, options.features.compute_dtype));
  LeastLimit least{below, {}};
  for (const ClusterPart& part : parts.parts)
    if (LeastLimit found = least_limit(model, part.cluster, options, least.bytes); found.bytes < least.bytes)
      least = std::move(found);
  return least;
}

Status nothing_fits(const TransformerShape& model, const Fleet& fleet, const StepSearchOptions& options) {
  const Result<ClusterParts> parts = cluster_parts(fleet, options.features.compute_dtype);
  if (!parts.ok()) return parts.status();
  if (parts->groups.size() == 1) return nothing_fits(model, parts->parts[0].cluster, options);
  return no_kinds_fit(model, *parts, options);
}

Result<StepSearchResult> search_step(const TransformerShape& model, const Fleet& fleet,
                                     const StepSearchOptions& options) {
  TSR_RETURN_IF_ERROR(check_fp8_linears(model, options.features, fleet.clusters));
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, options.features.compute_dtype));
  if (parts.parts.empty())
    return Status(StatusCode::kInvalidArgument, "search: found no devices, wanted at least one");
  if (parts.groups.size() == 1) return of_one(fleet, parts, search_part(model, parts.parts[0], options));
  std::vector<KindChoice> choices;
  for (const ClusterPart& part : parts.parts) choices.push_back(choice_of(parts, part));
  std::optional<StepSearchResult> best;
  size_t chosen = parts.parts.size();
  double bound = INFINITY;
  Status refused;
  const auto look = [&](size_t i, const StepSearchOptions& asked) {
    const ClusterPart& part = parts.parts[i];
    Result<StepSearchResult> found = search_part(model, part, asked);
    if (!found.ok()) return found.status();
    choices[i].bound_s = found->bound_s;
    if (!found->best.stages.empty()) price_by_slowest(model, part, options.global_batch, found->best);
    for (FoundStep& other : found->runners_up) price_by_slowest(model, part, options.global_batch, other);
    const double step = choices[i].step_s = found->best.time.step_s;
    if (best && (step > best->best.time.step_s || (step == best->best.time.step_s && i > chosen)))
      return Status();
    chosen = i, best = std::move(*found), best->part = part.cluster;
    return Status();
  };
  StepSearchOptions one = options;
  one.advise = one.last_resort = false;
  std::vector<size_t> none_fits;
  for (size_t i = 0; i < parts.parts.size(); ++i) {
    const Status status = look(i, one);
    if (status.ok()) continue;
    // Meshes that are pinned may not be of this many devices.
    if (status.code() == StatusCode::kOutOfMemory) none_fits.push_back(i);
    if (refused.ok()) refused = status;
  }
  const bool too_large = !none_fits.empty();
  // Saving memory at a price, too.
  std::erase_if(none_fits, [&](size_t i) {
    return surely_too_large(model, parts.parts[i].cluster, options).has_value();
  });
  // What saves memory at a price may make plans of these that are faster even so.
  one.last_resort = options.last_resort;
  for (const size_t i : none_fits) {
    if (!options.wide || !options.last_resort || (options.shard && options.offload)) break;
    if (best && std::isfinite(best->best.time.step_s)) {
      StepSearchOptions below = one;
      below.shard = below.offload = true, below.most_s = best->best.time.step_s;
      const auto faster = search_step(model, parts.parts[i].cluster, below);
      if (faster.ok() && faster->bound_s >= below.most_s) {
        choices[i].bound_s = faster->bound_s;
        continue;
      }
    }
    (void)look(i, one);
  }
  if (options.wide) take_mixed(model, parts, options, best, choices, chosen);
  for (const KindChoice& choice : choices) bound = std::min(bound, choice.bound_s);
  if (!best && too_large && options.advise) return no_kinds_fit(model, parts, options);
  if (!best) return refused;
  std::rotate(choices.begin(), choices.begin() + static_cast<int64_t>(chosen),
              choices.begin() + static_cast<int64_t>(chosen) + 1);
  best->kinds = std::move(choices);
  best->bound_s = bound;
  const double step = best->best.time.step_s;
  best->gap = std::isfinite(step) ? (step - bound) / step : 0;
  return std::move(*best);
}

Result<PricedOnFleet> price_step(const TransformerShape& model, const ForeignPlan& plan, const Fleet& fleet,
                                 int64_t global_batch) {
  TSR_RETURN_IF_ERROR(check_fp8_linears(model, plan, fleet.clusters));
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, plan.compute_dtype));
  for (const ClusterPart& part : parts.parts) {
    if (part.groups.size() < parts.groups.size() ||
        static_cast<int64_t>(part.cluster.devices.size()) < fleet.devices())
      continue;
    PricedOnFleet priced;
    TSR_ASSIGN_OR_RETURN(priced.found, price_step(model, plan, part.cluster, global_batch));
    price_by_slowest(model, part, global_batch, priced.found);
    priced.part = part.cluster;
    return priced;
  }
  return Status(StatusCode::kInvalidArgument,
                format("'{}' is for {} devices of several clusters, not all of which have a network: nothing "
                       "joins them",
                       to_text(plan), fleet.devices()));
}

Result<GenerateResult> search_generate(const TransformerShape& model, const Fleet& fleet,
                                       const GenerateOptions& options) {
  TSR_ASSIGN_OR_RETURN(const ClusterParts parts, cluster_parts(fleet, options.work.dtype));
  if (parts.parts.empty())
    return Status(StatusCode::kInvalidArgument, "generate: found no devices, wanted at least one");
  if (parts.groups.size() == 1)
    return of_one(fleet, parts, search_generate(model, parts.parts[0].cluster, options));
  std::optional<GenerateResult> best;
  double bound = options.throughput ? 0 : INFINITY;
  Status refused;
  int64_t least = INT64_MAX;
  for (const ClusterPart& part : parts.parts) {
    Result<GenerateResult> found = search_generate(model, part.cluster, options);
    if (!found.ok()) {
      // Of those that do not fit, the one that needs the least tells what would do.
      const int64_t bytes = least_generate(model, part.cluster.kinds[0],
                                           static_cast<int32_t>(part.cluster.devices.size()), options)
                                .bytes;
      if (refused.ok() || bytes < least)
        least = bytes,
        refused = found.status().with_context(format("on {}", groups_text(parts, part.groups)));
      continue;
    }
    bound = options.throughput ? std::max(bound, found->bound) : std::min(bound, found->bound);
    price_by_slowest(model, part, options, found->best);
    for (FoundGenerate& other : found->runners_up) price_by_slowest(model, part, options, other);
    const GenerateTime &time = found->best.time, &known = best ? best->best.time : time;
    if (best &&
        !(options.throughput ? time.tokens_per_s > known.tokens_per_s : time.request_s < known.request_s))
      continue;
    const KindChoice choice = choice_of(parts, part);
    best = std::move(*found);
    best->used = choice.used, best->idle = choice.idle;
    best->part = part.cluster;
  }
  if (!best) return refused;
  best->bound = bound;
  best->gap = options.throughput ? (bound - best->best.time.tokens_per_s) / bound
                                 : (best->best.time.request_s - bound) / best->best.time.request_s;
  return std::move(*best);
}

}  // namespace tessera

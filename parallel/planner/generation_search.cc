#include "parallel/planner/generation_search.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "graph/base/text.h"
#include "parallel/planner/best_first.h"
#include "parallel/planner/smallest_fit.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

// Relative accuracy of throughput, unless profiles limit it.
constexpr double kClose = 1e-3;
constexpr int64_t kMostProfiles = 400;

// --- the space ---

int64_t node_of(const Cluster& cluster, int64_t devices) {
  return cluster.node_devices > 0 ? cluster.node_devices : devices;
}

// Stages of tp devices that fit on `devices`: a stage shares a node, or fills whole nodes.
int64_t count_stages(const Cluster& cluster, int64_t devices, int32_t tp) {
  const int64_t node = node_of(cluster, devices);
  if (tp > node) return devices / ((tp + node - 1) / node * node);
  return devices / node * (node / tp) + devices % node / tp;
}

// The smallest device count with room for `stages`.
int64_t devices_for(const Cluster& cluster, int64_t stages, int32_t tp) {
  const int64_t node = node_of(cluster, stages * tp);
  if (tp > node) return (tp + node - 1) / node * node * stages;
  const int64_t full = node / tp;
  return stages / full * node + stages % full * tp;
}

// Mesh: the devices of a replica, and how many replicas fit.
struct Mesh {
  int32_t tp = 1, pp = 1;
  int64_t most = 1;
};

// Meshes of as many stages as fit. `refused`: why the last tp that cannot be lowered is left out.
std::vector<Mesh> find_meshes(GenerationPrices& prices, const GenerationOptions& options,
                              const std::function<int64_t(int32_t)>& most_stages, Status& refused) {
  std::vector<Mesh> meshes;
  for (const int32_t tp : prices.tensor_sizes()) {
    const int64_t stages = most_stages(tp);
    if (stages == 0 || options.tp.value_or(tp) != tp) continue;
    if (const Status made = prices.profile(tp, false, 1).status(); !made.ok()) {
      refused = made;
      continue;
    }
    for (int32_t pp = 1; pp <= std::min<int64_t>(stages, prices.blocks()); ++pp)
      if (options.pp.value_or(pp) == pp && options.dp.value_or(1) <= stages / pp)
        meshes.push_back({tp, pp, stages / pp});
  }
  return meshes;
}

// Plans of a mesh with a given batch, of all replicas or of each. `fewest`: of an open batch, the smallest.
std::vector<GenerationPlan> plans_of(const Mesh& mesh, const GenerationOptions& options, bool fewest) {
  std::vector<GenerationPlan> plans;
  const auto add = [&](int64_t dp, int64_t batch) {
    if (dp <= mesh.most && options.dp.value_or(static_cast<int32_t>(dp)) == dp)
      plans.push_back({mesh.tp, mesh.pp, static_cast<int32_t>(dp), batch, options.prefill_batch.value_or(1)});
  };
  const bool is_open = options.throughput && options.batch == 0;
  const int64_t all = std::max<int64_t>(1, options.batch), each = options.replica_batch.value_or(fewest && is_open ? 1 : 0);
  if (each == 0)
    for (const int32_t dp : divisors(all)) add(dp, all / dp);  // more replicas than sequences would idle
  else if (options.batch == 0)
    add(options.dp.value_or(static_cast<int32_t>(is_open && !fewest ? std::min<int64_t>(mesh.most, INT32_MAX) : 1)), each);
  else if (options.batch % each == 0)
    add(options.batch / each, each);
  return plans;
}

// --- the search ---

// Interval: group sizes between two with known steps, and a bound on their tokens per second.
struct Interval {
  int64_t low = 0, high = 0;
  bool is_last = false;  // no larger size is known
  double bound = 0;
};

// MeshBatches: the numbers of sequences of a mesh, by the interval that may serve most.
struct MeshBatches {
  Mesh mesh;
  Interval best = {};
  size_t known = 0;  // known steps when this was computed
  std::set<int64_t> priced = {};
  double found = 0;
};
using OpenBatches = OpenPart<MeshBatches>;  // its bound: negative tokens per second

// For throughput with an open batch an evaluator (best_first.h).
class GenerationSearch {
 public:
  static constexpr bool kByBound = true;

  GenerationSearch(GenerationPrices& prices, const GenerationOptions& options)
      : prices_(prices), options_(options), limit_(options.limit(prices.cluster())) {}

  Result<GenerationResult> run() {
    TSR_RETURN_IF_ERROR(check_request(options_));
    const Cluster& cluster = prices_.cluster();
    const std::vector<Mesh> meshes = find_meshes(
        prices_, options_, [&](int32_t tp) { return count_stages(cluster, std::ssize(cluster.devices), tp); }, refused_);
    result_.meshes = std::ssize(meshes);
    if (meshes.empty()) return refused();
    if (searches_batches()) {
      TSR_RETURN_IF_ERROR(search_batches(meshes));
    } else {
      for (const Mesh& mesh : meshes)
        for (const GenerationPlan& plan : plans_of(mesh, options_, false))
          if (options_.replica_batch || !is_beaten(plan)) price(plan);
    }
    result_.priced = priced_;
    if (found_.empty()) return refuse();
    std::ranges::stable_sort(found_, [&](const FoundGeneration& a, const FoundGeneration& b) {
      return is_better(a.time, b.time);
    });
    result_.best = found_[0];
    for (size_t i = 1; i < found_.size() && result_.runners_up.size() < options_.runners_up; ++i) {
      const auto same = [&](const FoundGeneration& other) {
        return other.plan.tp == found_[i].plan.tp && other.plan.pp == found_[i].plan.pp;
      };
      if (!same(result_.best) && std::ranges::none_of(result_.runners_up, same))
        result_.runners_up.push_back(found_[i]);
    }
    const GenerationTime& best = result_.best.time;
    result_.bound = options_.throughput ? std::max(bound_, best.tokens_per_s) : best.request_s;
    result_.gap = options_.throughput ? (result_.bound - best.tokens_per_s) / result_.bound : 0;
    return std::move(result_);
  }

 private:
  bool searches_batches() const {
    return options_.throughput && options_.batch == 0 && !options_.replica_batch;
  }

  bool is_better(const GenerationTime& a, const GenerationTime& b) const {
    return options_.throughput ? a.tokens_per_s > b.tokens_per_s : a.request_s < b.request_s;
  }

  Status refused() const {
    if (options_.tp && !refused_.ok()) return refused_.with_context(format("tp={}", *options_.tp));
    return Status(StatusCode::kInvalidArgument,
                  format("no tp (of {} heads in equal parts) and pp (of {} blocks) use {} devices or fewer "
                         "with what is pinned",
                         prices_.tensor_sizes().back(), prices_.blocks(), prices_.cluster().devices.size()));
  }

  // Numbers of prompts at a time: powers of two, and all of a given batch, until `use` returns false.
  template <class Use>
  void for_parts(GenerationPlan plan, Use use) const {
    for (plan.prefill_batch = options_.prefill_batch.value_or(1); use(plan); plan.prefill_batch *= 2)
      if (options_.prefill_batch || plan.prefill_batch >= plan.batch ||
          (searches_batches() && 2 * plan.prefill_batch > plan.batch))
        return;
  }

  // Whether the plan may fit, judged by decoding `sequences`; exact for the plan's number.
  bool fits(const GenerationPlan& plan, int64_t sequences) {
    const auto stages = prices_.memory(plan, sequences);
    return stages.ok() && std::ranges::all_of(*stages, [&](const GenerationMemory& it) {
             return it.total() <= limit_ && (options_.kv_budget == 0 || it.caches <= options_.kv_budget);
           });
  }

  // Finds the best number of prompts at a time; false if none fits.
  bool price(const GenerationPlan& plan) {
    std::optional<FoundGeneration> best;
    known_[plan.tp].insert(plan.group());
    for_parts(plan, [&](const GenerationPlan& part) {
      if (!fits(part, part.group())) return false;
      const auto time = prices_.time(part);
      ++priced_;
      if (time.ok() && (!best || is_better(*time, best->time))) best = FoundGeneration{part, *time};
      return time.ok();
    });
    if (!best) return false;
    most_tokens_ = std::max(most_tokens_, best->time.tokens_per_s);
    least_request_ = std::min(least_request_, best->time.request_s);
    found_.push_back(*best);
    return true;
  }

  // Lower bound of a request's seconds, from a token time known for at most the plan's sequences.
  double least_seconds(const GenerationPlan& plan, int64_t sequences) {
    double first = INFINITY;
    for_parts(plan, [&](const GenerationPlan& part) {
      GenerationPlan emptiest = part;
      emptiest.batch = part.part();
      if (!fits(emptiest, 1)) return false;
      if (const auto seconds = prices_.first_token_s(part); seconds.ok()) first = std::min(first, *seconds);
      return true;
    });
    const auto token = prices_.token_s(plan, sequences);
    return token.ok() ? first + static_cast<double>(options_.work.new_tokens - 1) * *token : INFINITY;
  }

  // The largest number of sequences, up to a group's, whose step is known.
  int64_t known_below(int32_t tp, int64_t group) { return *std::prev(known_[tp].upper_bound(group)); }

  bool is_beaten(const GenerationPlan& plan) {
    known_[plan.tp].insert(1);
    return std::isfinite(least_request_) &&
           least_seconds(plan, known_below(plan.tp, plan.group())) >= least_request_;
  }

  GenerationPlan plan_of(const Mesh& mesh, int64_t group) const {
    return {mesh.tp, mesh.pp, options_.dp.value_or(static_cast<int32_t>(mesh.most)), group * mesh.pp,
            options_.prefill_batch.value_or(1)};
  }

  double most_tokens_per_s(const Mesh& mesh, int64_t group, int64_t known) {
    const GenerationPlan plan = plan_of(mesh, group);
    return static_cast<double>(plan.dp * plan.batch * options_.work.new_tokens) / least_seconds(plan, known);
  }

  // The largest group that may fit; 0: none.
  int64_t largest_group(const Mesh& mesh) {
    const auto may_fit = [&](int64_t group) {
      return fits(plan_of(mesh, group), known_below(mesh.tp, group));
    };
    if (!may_fit(1)) return 0;
    int64_t low = 1, high = 2;
    while (may_fit(high)) low = high, high *= 2;
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (may_fit(middle) ? low : high) = middle;
    }
    return low;
  }

  void refresh(MeshBatches& it) {
    const std::set<int64_t>& known = known_[it.mesh.tp];
    const int64_t most = largest_group(it.mesh);
    it.best = {};
    it.known = known.size();
    if (most == 0) price_partly_filled(it.mesh);
    for (auto at = known.begin(); at != known.end() && *at <= most; ++at) {
      if (!it.priced.contains(*at) && most_tokens_per_s(it.mesh, *at, *at) > it.found) {
        it.priced.insert(*at);
        if (price(plan_of(it.mesh, *at))) it.found = std::max(it.found, found_.back().time.tokens_per_s);
      }
      const auto next = std::next(at);
      Interval interval{*at, next == known.end() ? most : std::min(most, *next - 1), next == known.end(), 0};
      if (interval.high <= interval.low) continue;
      interval.bound = most_tokens_per_s(it.mesh, interval.high, interval.low);
      if (interval.bound > it.best.bound) it.best = interval;
    }
  }

  // The largest batch that fits, if smaller than the number of stages.
  void price_partly_filled(const Mesh& mesh) {
    GenerationPlan plan = plan_of(mesh, 1);
    for (plan.batch = 1; plan.batch < mesh.pp && fits(plan, 1);) ++plan.batch;
    if (--plan.batch > 0) price(plan);
  }

  // Bounds only decrease as more steps become known, so the recomputed highest is the maximum.
  Status search_batches(const std::vector<Mesh>& meshes) {
    for (const Mesh& mesh : meshes) {
      known_[mesh.tp].insert(1);
      open_.push({mesh}, -INFINITY);
    }
    before_ = prices_.profiles();
    std::vector<OpenBatches> closed;
    TSR_RETURN_IF_ERROR(search_best_first(*this, open_, closed));
    bound_ = -open_.next().bound;
    return {};
  }

  bool is_known(const MeshBatches& it) { return it.known == known_[it.mesh.tp].size(); }

 public:
  // --- evaluator ---

  Result<bool> may_continue() {
    return !is_known(open_.next().part) || prices_.profiles() - before_ < kMostProfiles;
  }
  bool is_closed(const OpenBatches& it) const { return -it.bound <= most_tokens_ * (1 + kClose); }
  size_t at_once() const { return 1; }
  void prepare(const std::vector<OpenBatches>&) {}
  void evaluate(OpenBatches& it) {
    // Powers of two first, since they bound all meshes with this tp.
    if (const Interval& at = it.part.best; is_known(it.part))
      known_[it.part.mesh.tp].insert(at.high > 2 * at.low ? 2 * at.low
                                     : at.is_last         ? at.high
                                                          : at.low + (at.high - at.low + 1) / 2);
    else
      refresh(it.part), it.bound = -it.part.best.bound, it.rank = {it.bound, 0};
    open_.put_back(std::move(it));
  }

 private:
  // --- the smallest that fits ---

  // Fullest: the device of a plan with most bytes, and the most of keys and values.
  struct Fullest {
    GenerationPlan plan;
    int64_t bytes = INT64_MAX, caches = INT64_MAX;
    std::ptrdiff_t stage = 0;
    GenerationMemory memory;
  };

  Fullest fullest_of(const GenerationPlan& plan) {
    const auto stages = prices_.memory(plan, plan.group());
    if (!stages.ok()) return {};
    const auto at = std::ranges::max_element(*stages, {}, &GenerationMemory::total);
    return {plan, at->total(), std::ranges::max(*stages, {}, &GenerationMemory::caches).caches, at - stages->begin(), *at};
  }

  bool is_within_budget(const Fullest& it) const { return options_.kv_budget == 0 || it.caches <= options_.kv_budget; }

  // The plans of the space with least memory: of every mesh and replica
  // count, with the fewest sequences and one prompt at a time.
  template <class Use>
  void for_smallest_plans(const std::function<int64_t(int32_t)>& most_stages, Use use) {
    for (const Mesh& mesh : find_meshes(prices_, options_, most_stages, refused_))
      for (const GenerationPlan& plan : plans_of(mesh, options_, true)) use(plan);
  }

  std::string peak_text(const Fullest& fullest) const {
    const GenerationMemory& memory = fullest.memory;
    std::vector<std::pair<int64_t, std::string>> parts = {
        {memory.parameters, "weights"},
        {memory.caches, format("keys and values of {} x {} tokens", fullest.plan.batch, options_.work.context())},
        {memory.transient, "prompts at work"},
        {memory.logits, "logits"},
        {memory.reserved, "contexts and communicators"}};
    std::ranges::stable_sort(parts, std::greater(), &std::pair<int64_t, std::string>::first);
    std::vector<std::string> texts;
    for (const auto& [bytes, name] : parts)
      if (bytes > 0) texts.push_back(format("{} {}", name, bytes_text(bytes)));
    return format("Its peak: stage {}, at the last new token: {}.", fullest.stage, join(texts, ", "));
  }

  Status refuse() {
    const Cluster& cluster = prices_.cluster();
    const int64_t devices = std::ssize(cluster.devices);
    Fullest least, cheapest;  // in bytes; in keys and values
    for_smallest_plans([&](int32_t tp) { return count_stages(cluster, devices, tp); },
                       [&](const GenerationPlan& plan) {
                         const Fullest it = fullest_of(plan);
                         if (it.caches < cheapest.caches) cheapest = it;
                         if (is_within_budget(it) && it.bytes < least.bytes) least = it;
                       });
    if (cheapest.caches == INT64_MAX)
      return Status(StatusCode::kInvalidArgument,
                    format("no plan has the pinned batch and replicas on {} devices", devices));
    if (least.bytes == INT64_MAX)  // only the budget can exclude all plans
      return Status(
          StatusCode::kOutOfMemory,
          format("no plan keeps keys and values within {} a device; the smallest budget that works is {} "
                 "({} bytes) with '{}'. {}",
                 bytes_text(options_.kv_budget), bytes_text(cheapest.caches), cheapest.caches, to_text(cheapest.plan),
                 "Fewer sequences or shorter ones need less"));
    int64_t fewest = INT64_MAX;
    GenerationPlan fewer;
    const int64_t replicas = std::max<int64_t>({1, options_.batch, options_.dp.value_or(1)});
    for_smallest_plans([&](int32_t) { return replicas * prices_.blocks(); },
                       [&](const GenerationPlan& plan) {
                         const int64_t needs = devices_for(cluster, int64_t{plan.pp} * plan.dp, plan.tp);
                         if (needs >= fewest) return;
                         if (const Fullest it = fullest_of(plan); it.bytes <= limit_ && is_within_budget(it))
                           fewest = needs, fewer = plan;
                       });
    const std::string more =
        fewest < INT64_MAX
            ? format("The smallest number of devices that would do is {}, with '{}'", fewest, to_text(fewer))
            : "No number of devices would do";
    const Status refused = nothing_fits({.entries = {},
                                         .given = limit_,
                                         .bytes = least.bytes,
                                         .strategy = to_text(least.plan),
                                         .more = peak_text(least) + " " + more});
    return fewest < INT64_MAX ? refused.with_number("smallest_devices", fewest) : refused;
  }

  GenerationPrices& prices_;
  const GenerationOptions& options_;
  const int64_t limit_;
  Status refused_;
  std::vector<FoundGeneration> found_;
  double most_tokens_ = 0, bound_ = 0, least_request_ = INFINITY;
  std::map<int32_t, std::set<int64_t>> known_;  // by tp: sequences of priced decode steps
  OpenParts<MeshBatches> open_;
  int64_t before_ = 0;  // profiles before the search
  int64_t priced_ = 0;
  GenerationResult result_;
};

std::string part_text(const Cluster& part) {
  return format("{} {}", part.devices.size(), part.kinds[0].name);
}

}  // namespace

Status check_request(const GenerationOptions& options) {
  const GenerationWork& work = options.work;
  const int64_t batch = std::max({int64_t{1}, options.batch, options.replica_batch.value_or(1)});
  if (work.prompt < 1 || work.new_tokens < 1 || (options.context > 0 && work.context() > options.context))
    return Status(StatusCode::kInvalidArgument,
                  format("a prompt of {} and {} new tokens make {}, the model's context is T = {}",
                         work.prompt, work.new_tokens, work.context(), options.context));
  if (batch > kMostPositions / work.context() || batch > INT32_MAX)
    return Status(StatusCode::kInvalidArgument,
                  format("found {} sequences of {} tokens, wanted {} tokens or fewer in all", batch,
                         work.context(), kMostPositions));
  return {};
}

Result<GenerationResult> search_generation(GenerationPrices& prices, const GenerationOptions& options) {
  return GenerationSearch(prices, options).run();
}

Result<GenerationResult> search_generation(std::vector<GenerationPrices>& parts,
                                           const GenerationOptions& options) {
  if (parts.size() == 1) return search_generation(parts[0], options);
  std::optional<GenerationResult> best;
  std::vector<std::string> lacks;
  Status failed;
  for (size_t p = 0; p < parts.size(); ++p) {
    Result<GenerationResult> found = search_generation(parts[p], options);
    if (!found.ok()) {
      lacks.push_back(format("{}: {}", part_text(parts[p].cluster()), found.status().message()));
      if (failed.ok() || found.status().code() == StatusCode::kOutOfMemory) failed = found.status();
      continue;
    }
    found->part = p;
    const auto value = [&](const GenerationResult& it) {
      return options.throughput ? it.best.time.tokens_per_s : -it.best.time.request_s;
    };
    const bool is_best = !best || value(*found) > value(*best);
    const double bound = !best                ? found->bound
                         : options.throughput ? std::max(best->bound, found->bound)
                                              : std::min(best->bound, found->bound);
    if (is_best) best = std::move(*found);
    best->bound = bound;
  }
  if (!best) return Status(failed.code(), join(lacks, "; "));
  if (options.throughput) best->gap = (best->bound - best->best.time.tokens_per_s) / best->bound;
  std::vector<std::string> idle;
  for (size_t p = 0; p < parts.size(); ++p)
    if (p != best->part) idle.push_back(part_text(parts[p].cluster()));
  best->used = part_text(parts[best->part].cluster());
  best->idle = join(idle, " + ");
  return std::move(*best);
}

}  // namespace tessera

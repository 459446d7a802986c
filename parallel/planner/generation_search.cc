#include "parallel/planner/generation_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "graph/base/text.h"
#include "parallel/planner/generation_refusal.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

// Relative accuracy of throughput, unless profiles limit it.
constexpr double kClose = 1e-3;
constexpr int64_t kMostProfiles = 400;

struct Mesh {
  int32_t tp = 1, pp = 1, most = 1;  // most: replicas
};

class GenerationSearch {
 public:
  GenerationSearch(GenerationPrices& prices, const GenerationOptions& options)
      : prices_(prices), options_(options), limit_(options.limit(prices.cluster())) {}

  Result<GenerationResult> run() {
    TSR_RETURN_IF_ERROR(check_request(options_));
    std::vector<Mesh> meshes = find_meshes();
    result_.meshes = std::ssize(meshes);
    if (meshes.empty()) return refused();
    if (searches_batches())
      search_batches(std::move(meshes));
    else
      for (const Mesh& mesh : meshes) price_fixed(mesh);
    result_.priced = priced_;
    if (found_.empty()) return refuse_generation(prices_, options_);
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

  std::vector<Mesh> find_meshes() {
    std::vector<Mesh> meshes;
    for (const int32_t tp : prices_.tensor_sizes()) {
      if (options_.tp && *options_.tp != tp) continue;
      const auto stages =
          static_cast<int32_t>(count_stages(prices_.cluster(), std::ssize(prices_.cluster().devices), tp));
      if (stages == 0) continue;
      if (const Status made = prices_.profile(tp, false, 1).status(); !made.ok()) {
        refused_ = made;
        continue;
      }
      for (int32_t pp = 1; pp <= std::min(stages, prices_.blocks()); ++pp)
        if ((!options_.pp || *options_.pp == pp) && options_.dp.value_or(1) <= stages / pp)
          meshes.push_back({tp, pp, stages / pp});
    }
    return meshes;
  }

  Status refused() const {
    if (options_.tp && !refused_.ok()) return refused_.with_context(format("tp={}", *options_.tp));
    return Status(StatusCode::kInvalidArgument,
                  format("no tp (of {} heads in equal parts) and pp (of {} blocks) use {} devices or fewer "
                         "with what is pinned",
                         prices_.tensor_sizes().back(), prices_.blocks(), prices_.cluster().devices.size()));
  }

  void price_fixed(const Mesh& mesh) {
    if (options_.replica_batch) {
      const int64_t each = *options_.replica_batch;
      const int64_t all = options_.batch > 0 ? options_.batch / each : options_.throughput ? mesh.most : 1;
      const int64_t dp = options_.dp.value_or(static_cast<int32_t>(std::min<int64_t>(all, INT32_MAX)));
      if (dp <= mesh.most && (options_.batch == 0 || dp * each == options_.batch))
        price({mesh.tp, mesh.pp, static_cast<int32_t>(dp), each});
      return;
    }
    const int64_t all = std::max<int64_t>(1, options_.batch);
    for (const int32_t dp : divisors(all))  // more replicas than sequences would idle
      if (dp <= mesh.most && (!options_.dp || *options_.dp == dp) &&
          !is_beaten({mesh.tp, mesh.pp, dp, all / dp}))
        price({mesh.tp, mesh.pp, dp, all / dp});
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

  // Interval: group sizes between two with known steps, and a bound on their tokens per second.
  struct Interval {
    int64_t low = 0, high = 0;
    bool is_last = false;  // no larger size is known
    double bound = 0;
  };
  struct MeshBound {
    Mesh mesh;
    Interval best = {.bound = INFINITY};
    size_t known = 0;  // known steps when this was computed
    std::set<int64_t> priced = {};
    double found = 0;
  };

  GenerationPlan plan_of(const Mesh& mesh, int64_t group) const {
    return {mesh.tp, mesh.pp, options_.dp.value_or(mesh.most), group * mesh.pp,
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

  void refresh(MeshBound& it) {
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
  void search_batches(std::vector<Mesh> meshes) {
    std::vector<MeshBound> bounds;
    for (const Mesh& mesh : meshes) {
      known_[mesh.tp].insert(1);
      bounds.push_back({mesh});
    }
    const int64_t before = prices_.profiles();
    while (true) {
      MeshBound& top =
          *std::ranges::max_element(bounds, {}, [](const MeshBound& it) { return it.best.bound; });
      bound_ = top.best.bound;
      if (bound_ <= most_tokens_ * (1 + kClose)) return;
      if (top.known < known_[top.mesh.tp].size()) {
        refresh(top);
        continue;
      }
      if (prices_.profiles() - before >= kMostProfiles) return;
      // Powers of two first, since they bound all meshes with this tp.
      const Interval& at = top.best;
      const int64_t next = at.high > 2 * at.low ? 2 * at.low
                           : at.is_last         ? at.high
                                                : at.low + (at.high - at.low + 1) / 2;
      known_[top.mesh.tp].insert(next);
    }
  }

  GenerationPrices& prices_;
  const GenerationOptions& options_;
  const int64_t limit_;
  Status refused_;
  std::vector<FoundGeneration> found_;
  double most_tokens_ = 0, bound_ = 0, least_request_ = INFINITY;
  std::map<int32_t, std::set<int64_t>> known_;  // by tp: sequences of priced decode steps
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

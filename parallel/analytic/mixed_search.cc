// Bounds of one configuration, with x_k the seconds of one block on kind k and p_k its stages. Stages of kind
// k with n blocks each take m n x_k or more, so that T >= m L / sum_k (p_k / x_k). And with W >= L min x_k
// the closed form of analytic/step_solver, where a stage may send for longer than it computes (phi = 1).
#include "parallel/analytic/mixed_search.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>

#include "parallel/analytic/memory_floor.h"
#include "parallel/search/divisors.h"
#include "parallel/search/pipeline_cuts.h"
#include "parallel/search/repeated_blocks.h"

namespace tessera {

namespace {

constexpr double kSlack = 1 - 1e-9;
constexpr Recompute kWays[] = {Recompute::kNone, Recompute::kSelective, Recompute::kFull};

double both(const StagePasses& passes) { return passes.forward_s + passes.backward_s; }

StageBlocks all_of(int64_t count, Recompute way) {
  return {count, way == Recompute::kFull ? count : 0, way == Recompute::kSelective ? count : 0};
}

// What joins these groups: the box that they share, or the slowest of their networks, of which each device
// has its part.
std::optional<Cluster> between(const ClusterParts& parts, const std::vector<const ClusterPart*>& chosen) {
  Cluster joined = chosen[0]->cluster;
  const DeviceGroup& first = parts.groups[chosen[0]->groups[0]];
  const bool one_box = first.one_node && std::ranges::all_of(chosen, [&](const ClusterPart* part) {
                         return parts.groups[part->groups[0]].cluster == first.cluster;
                       });
  if (one_box) {
    joined.node_devices = 0;
    return joined;
  }
  double rate = INFINITY, latency = 0;
  for (const ClusterPart* part : chosen) {
    const Cluster& cluster = part->cluster;
    const auto sharing = static_cast<double>(
        cluster.node_devices > 0 ? cluster.node_devices : static_cast<int32_t>(cluster.devices.size()));
    rate = std::min(rate, cluster.network.bytes_per_s / sharing);
    latency = std::max(latency, cluster.network.latency_s);
  }
  if (rate <= 0) return std::nullopt;
  joined.node_devices = 1;
  joined.network = {rate, latency};
  return joined;
}

// Kinds in the order of their stages.
struct Order {
  std::vector<size_t> groups;
  std::vector<Cluster> kinds;
  Cluster between;
};

std::vector<Order> orders_of(const ClusterParts& parts) {
  std::vector<const ClusterPart*> alone(parts.groups.size(), nullptr);
  for (const ClusterPart& part : parts.parts)
    if (part.groups.size() == 1) {
      const ClusterPart*& known = alone[part.groups[0]];
      if (known == nullptr || known->cluster.devices.size() < part.cluster.devices.size()) known = &part;
    }
  std::vector<Order> all;
  for (uint32_t choice = 1; choice < 1U << parts.groups.size(); ++choice) {
    std::vector<size_t> groups;
    for (size_t g = 0; g < parts.groups.size(); ++g)
      if ((choice >> g & 1) != 0) groups.push_back(g);
    if (groups.size() < 2 || groups.size() > 3) continue;
    do {
      Order order{groups, {}, {}};
      std::vector<const ClusterPart*> chosen;
      for (const size_t g : groups) chosen.push_back(alone[g]), order.kinds.push_back(alone[g]->cluster);
      const auto joined = between(parts, chosen);
      if (!joined) break;
      order.between = *joined;
      all.push_back(std::move(order));
    } while (std::ranges::next_permutation(groups).found);
  }
  return all;
}

struct Configuration {
  ForeignPlan plan;
  size_t order = 0;
  std::vector<int32_t> stages;  // of each kind
  double bound_s = 0;
};

StageKinds stage_kinds(const Order& order, const Configuration& configuration) {
  StageKinds kinds{order.kinds, {}, order.between};
  for (size_t k = 0; k < configuration.stages.size(); ++k)
    kinds.of_stage.insert(kinds.of_stage.end(), static_cast<size_t>(configuration.stages[k]), k);
  return kinds;
}

class Search {
 public:
  Search(const TransformerShape& model, const ClusterParts& parts, const StepSearchOptions& options,
         double best_s)
      : model_(model), options_(options), orders_(orders_of(parts)), best_s_(best_s) {
    for (const Recompute way : kWays)
      if (allowed(options.recompute, way) &&
          (way != Recompute::kSelective || !options.features.fused_attention))
        ways_.push_back(way);
  }

  MixedSearchResult run() {
    result_.bound_s = INFINITY;
    if (!asked_for() || ways_.empty()) return std::move(result_);
    std::erase_if(orders_,
                  [&](const Order& order) { return surely_too_large(model_, order.kinds, options_); });
    for (const Order& order : orders_)
      for (const Cluster& cluster : order.kinds)
        most_devices_ = std::max(most_devices_, cluster.devices.size());
    add_meshes();
    std::ranges::stable_sort(open_, {}, &Configuration::bound_s);
    result_.configurations = static_cast<int64_t>(open_.size());
    for (const Configuration& one : open_) {
      if (one.bound_s >= best_s_ || result_.solved >= options_.most_solved) {
        result_.bound_s = std::min(result_.bound_s, one.bound_s);
        break;
      }
      ++result_.solved;
      solve(one);
    }
    return std::move(result_);
  }

 private:
  // Not with words that name what such pipelines do not do.
  bool asked_for() const {
    const ForeignPlan& features = options_.features;
    return features.form == TensorForm::k1d && features.cp == 1 && features.ep == 1 &&
           allowed(options_.cp, 1) && allowed(options_.ep, 1) && allowed(options_.virtual_stages, 1) &&
           allowed(options_.schedule, ForeignSchedule::k1F1B) && features.offload_params == 0 &&
           features.offload_optimizer == 0 && features.offload_activations == 0 &&
           features.sharded_attention == 0 && features.sharded_mlp == 0;
  }

  void add_meshes() {
    const auto devices = static_cast<int32_t>(most_devices_);
    for (const int32_t tp : divisors(model_.H)) {
      if (!allowed(options_.tp, tp) || (model_.KV % tp != 0 && tp % model_.KV != 0) || tp > devices) continue;
      for (const int32_t dp : divisors(options_.global_batch)) {
        if (!allowed(options_.dp, dp) || int64_t{tp} * dp > devices) continue;
        for (const int32_t mb : divisors(options_.global_batch / dp)) {
          if (!allowed(options_.micro_batch, int64_t{mb})) continue;
          for (const bool sp : {true, false}) {
            if (options_.pin_sequence_parallel ? sp != options_.features.sequence_parallel : (sp && tp == 1))
              continue;
            ForeignPlan plan = options_.features;
            plan.tp = tp, plan.dp = dp, plan.micro_batch = mb, plan.sequence_parallel = sp;
            plan.schedule = ForeignSchedule::k1F1B, plan.virtual_stages = 1, plan.pp = 2;
            by_kind_.clear();
            for (size_t o = 0; o < orders_.size(); ++o) add_mesh(o, plan);
          }
        }
      }
    }
  }

  // Of the mesh at hand on one kind.
  double block_seconds(size_t group, const ForeignPlan& plan, const Cluster& cluster) {
    const auto [at, made] = by_kind_.try_emplace(group, 0);
    if (made) at->second = block_seconds(StageTimes(model_, plan, cluster), ways_.front());
    return at->second;
  }

  static double block_seconds(const StageTimes& times, Recompute way) {
    return both(times.of(all_of(2, way), false, false)) - both(times.of(all_of(1, way), false, false));
  }

  void add_mesh(size_t o, const ForeignPlan& plan) {
    const Order& order = orders_[o];
    const double m = static_cast<double>(options_.global_batch / (plan.micro_batch * plan.data()));
    const size_t count = order.kinds.size();
    std::vector<double> block;
    std::vector<int64_t> most;
    double least = INFINITY;
    for (size_t k = 0; k < count; ++k) {
      most.push_back(static_cast<int64_t>(order.kinds[k].devices.size()) / (plan.tp * plan.replicas()));
      if (most.back() == 0) return;
      block.push_back(block_seconds(order.groups[k], plan, order.kinds[k]));
      least = std::min(least, block.back());
    }
    const double work = static_cast<double>(model_.L) * least;
    std::vector<int32_t> stages(count, 1);
    const auto each = [&](auto&& self, size_t k, int64_t before, double rate) -> void {
      if (k < count) {
        const int64_t left = model_.L - before - static_cast<int64_t>(count - k - 1);
        for (int64_t p = 1; p <= std::min(most[k], left); ++p) {
          stages[k] = static_cast<int32_t>(p);
          self(self, k + 1, before + p, rate + static_cast<double>(p) / block[k]);
        }
        return;
      }
      if (!allowed(options_.pp, static_cast<int32_t>(before))) return;
      double bound = kSlack * m * static_cast<double>(model_.L) / rate;
      if (bound < best_s_) {
        double weights = 0;
        for (int64_t s = 0; s < before; ++s) {
          const double pace = m - std::min(m, static_cast<double>(before - s));
          weights += pace > 0 ? 1 / pace : INFINITY;
        }
        bound = std::max(bound, kSlack * work * (1 + (std::isinf(weights) ? 0 : 1 / weights)));
      }
      if (bound >= best_s_) {
        result_.bound_s = std::min(result_.bound_s, bound);
        return;
      }
      for (const int32_t zero : {0, 1, 2, 3}) {
        if (!allowed(options_.zero, zero) || (plan.replicas() == 1 && zero > 0 && !options_.zero)) continue;
        Configuration one{plan, o, stages, bound};
        one.plan.pp = static_cast<int32_t>(before), one.plan.zero = zero;
        open_.push_back(std::move(one));
      }
    };
    each(each, 0, 0, 0);
  }

  struct Price {
    StageBlocks blocks;
    StagePasses passes;
    bool fits = false;
  };

  void solve(const Configuration& one) {
    const StageKinds kinds = stage_kinds(orders_[one.order], one);
    const MixedStages stages(model_, one.plan, kinds);
    const int64_t micro_batches = options_.global_batch / (one.plan.micro_batch * one.plan.data());
    const auto m = static_cast<double>(micro_batches);
    std::map<std::pair<int32_t, int64_t>, Price> known;
    const auto priced = [&](int32_t s, int64_t n) -> const Price& {
      const auto [at, made] = known.try_emplace({s, n});
      if (!made) return at->second;
      if (const auto stage = fill(one.plan, kinds, stages, s, n, micro_batches))
        at->second = {*stage, stages.passes(s, *stage), true};
      return at->second;
    };
    double least_block = INFINITY;
    for (int32_t s = 0; s < one.plan.pp; ++s)
      least_block = std::min(least_block, block_seconds(stages.times(s), ways_.front()));
    const double work = kSlack * static_cast<double>(model_.L) * least_block;
    double bound = one.bound_s;
    for (const bool as_bound : {true, false}) {
      const auto price = [&](int32_t s, int64_t n) {
        const Price& it = priced(s, n);
        if (!it.fits) return StagePrice{INFINITY, INFINITY};
        const double lead =
            as_bound ? static_cast<double>(in_flight(one.plan, s, micro_batches) - 1) * it.passes.forward_s
                     : 0;
        return StagePrice{both(it.passes), (m - 1) * both(it.passes) - lead};
      };
      const auto floor = [&](int32_t s, int64_t n) {
        const Price& it = priced(s, n);
        if (!it.fits) return static_cast<double>(INFINITY);
        return std::max(m * both(it.passes), price(s, n).pace_s + work);
      };
      const auto cuts = cut_growing_blocks(model_.L, one.plan.pp, price, floor, INFINITY);
      if (!cuts.ok()) return;  // too large
      if (as_bound) bound = std::max(bound, with_after(one, kinds, stages, m, kSlack * cuts->time_s));
      std::vector<StageBlocks> contents;
      for (int32_t s = 0; s < one.plan.pp; ++s) {
        const auto at = static_cast<size_t>(s);
        const int64_t end = s + 1 < one.plan.pp ? cuts->first[at + 1] : model_.L;
        contents.push_back(priced(s, end - cuts->first[at]).blocks);
      }
      keep(one, kinds, stages, std::move(contents), micro_batches);
    }
    result_.bound_s = std::min(result_.bound_s, bound);
  }

  // A pipeline of P seconds or more, and what comes after: some stage has as many parameters as there are on
  // average, and its backward passes take no more than P / m each. What hides beside every micro-batch may
  // gain more by a longer pipeline than that costs; the sum is convex in P.
  double with_after(const Configuration& one, const StageKinds& kinds, const MixedStages& stages, double m,
                    double pipeline_s) const {
    StageParameters average = stages.times(0).counts(model_.L, true, true);
    for (double* part : {&average.dense, &average.experts, &average.trained, &average.trained_experts,
                         &average.sharded, &average.trained_sharded})
      *part /= one.plan.pp;
    TransformerShape apart = model_;
    apart.tied = false;
    double least = INFINITY;
    for (const Cluster& cluster : kinds.kinds) {
      const auto total = [&](double p) {
        const AfterPipeline after =
            after_pipeline(apart, one.plan, cluster, static_cast<int64_t>(m), average, p / m);
        return p + after.gradients_s + after.update_s;
      };
      double low = pipeline_s, high = std::max(2 * total(0), pipeline_s);  // there everything is hidden
      if (one.plan.zero < 3 && average.experts == 0) high = low;           // never gains more
      for (int i = 0; i < 50 && low < high; ++i) {
        const double a = low + (high - low) / 3, b = high - (high - low) / 3;
        (total(a) <= total(b) ? high : low) = total(a) <= total(b) ? b : a;
      }
      least = std::min({least, (1 - 1e-7) * std::min(total(low), total(high)), total(pipeline_s)});
    }
    return least + shared_embedding_seconds(model_, one.plan, kinds);
  }

  std::optional<StageBlocks> fill(const ForeignPlan& plan, const StageKinds& kinds, const MixedStages& stages,
                                  int32_t s, int64_t count, int64_t micro_batches) const {
    const StageTimes& times = stages.times(s);
    const Cluster& cluster = kinds.kinds[kinds.of_stage[static_cast<size_t>(s)]];
    const int64_t limit = options_.memory_limit > 0 ? options_.memory_limit : cluster.kinds[0].memory_bytes;
    const int64_t flights = in_flight(plan, s, micro_batches);
    const int64_t fixed =
        times.memory_bytes(all_of(count, Recompute::kFull), s == 0, s + 1 == plan.pp, flights) -
        count * times.activation_bytes(Recompute::kFull) * flights;
    std::vector<BlockChoice> choices;
    for (const Recompute way : ways_)
      choices.push_back({block_seconds(times, way), times.activation_bytes(way) * flights, 0});
    const auto found = solve_repeated_blocks(choices, count, limit - fixed);
    if (!found.ok()) return std::nullopt;
    StageBlocks stage{count, 0, 0};
    for (size_t i = 0; i < ways_.size(); ++i) {
      if (ways_[i] == Recompute::kFull) stage.full = found->counts[i];
      if (ways_[i] == Recompute::kSelective) stage.selective = found->counts[i];
    }
    return stage;
  }

  void keep(const Configuration& one, const StageKinds& kinds, const MixedStages& stages,
            std::vector<StageBlocks> contents, int64_t micro_batches) {
    const auto time = mixed_step_time(model_, one.plan, kinds, options_.global_batch, contents);
    if (!time.ok() || !(time->step_s < best_s_)) return;
    best_s_ = time->step_s;
    FoundStep found;
    found.plan = one.plan, found.time = *time;
    found.plan.recompute = Recompute::kNone;
    for (int32_t s = 0; s < one.plan.pp; ++s) {
      const StageBlocks& stage = contents[static_cast<size_t>(s)];
      if (stage.selective > 0 && found.plan.recompute == Recompute::kNone)
        found.plan.recompute = Recompute::kSelective;
      if (stage.full > 0) found.plan.recompute = Recompute::kFull;
      found.memory_bytes.push_back(stages.times(s).memory_bytes(stage, s == 0, s + 1 == one.plan.pp,
                                                                in_flight(one.plan, s, micro_batches)));
    }
    found.stages = std::move(contents);
    result_.best = std::move(found);
    result_.kinds = kinds;
    result_.groups = orders_[one.order].groups;
  }

  const TransformerShape& model_;
  const StepSearchOptions& options_;
  std::vector<Order> orders_;
  std::vector<Recompute> ways_;
  size_t most_devices_ = 0;           // of one kind
  std::map<size_t, double> by_kind_;  // of the mesh at hand, by group
  std::vector<Configuration> open_;
  double best_s_;
  MixedSearchResult result_;
};

}  // namespace

MixedSearchResult search_mixed(const TransformerShape& model, const ClusterParts& parts,
                               const StepSearchOptions& options, double best_s) {
  return Search(model, parts, options, best_s).run();
}

}  // namespace tessera

#include "parallel/analytic/generate_search.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "graph/base/text.h"
#include "parallel/analytic/device_time.h"
#include "parallel/analytic/kinds_search.h"
#include "parallel/analytic/least_generate.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

// Throughput is known to this share of it.
constexpr double kClose = 1e-3;

class Search {
 public:
  Search(const TransformerShape& model, const Cluster& cluster, const GenerateOptions& options)
      : model_(model),
        cluster_(cluster),
        options_(options),
        limit_(options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes) {}

  Result<GenerateResult> run() {
    const auto devices = static_cast<int32_t>(cluster_.devices.size());
    TSR_RETURN_IF_ERROR(check_generate_plan(model_, cluster_, options_.work, {}));
    for (const int32_t tp : divisors(model_.H)) {
      if (tp > devices || (options_.tp && *options_.tp != tp) || (model_.KV % tp != 0 && tp % model_.KV != 0))
        continue;
      for (int32_t pp = 1; pp <= std::min<int64_t>(devices / tp, model_.L); ++pp) {
        if (options_.pp && *options_.pp != pp) continue;
        ++result_.meshes;
        mesh(tp, pp, devices / tp / pp);
      }
    }
    if (result_.meshes == 0)
      return Status(StatusCode::kInvalidArgument,
                    format("no tp (a divisor of {} heads) and pp use {} devices or fewer with what is pinned",
                           model_.H, devices));
    if (found_.empty()) return nothing_fits_generate(model_, cluster_, options_);
    std::ranges::stable_sort(
        found_, [&](const FoundGenerate& a, const FoundGenerate& b) { return better(a.time, b.time); });
    result_.best = found_[0];
    for (size_t i = 1; i < found_.size() && result_.runners_up.size() < options_.runners_up; ++i) {
      const auto same = [&](const FoundGenerate& other) {
        return other.plan.tp == found_[i].plan.tp && other.plan.pp == found_[i].plan.pp;
      };
      if (!same(result_.best) && std::ranges::none_of(result_.runners_up, same))
        result_.runners_up.push_back(found_[i]);
    }
    const GenerateTime& best = result_.best.time;
    result_.bound = options_.throughput ? std::max(bound_, best.tokens_per_s) : best.request_s;
    result_.gap = options_.throughput ? (result_.bound - best.tokens_per_s) / result_.bound : 0;
    return std::move(result_);
  }

 private:
  bool better(const GenerateTime& a, const GenerateTime& b) const {
    return options_.throughput ? a.tokens_per_s > b.tokens_per_s : a.request_s < b.request_s;
  }

  void mesh(int32_t tp, int32_t pp, int32_t most) {
    if (options_.replica_batch) {
      const int64_t each = *options_.replica_batch;
      const int64_t all = options_.batch > 0 ? options_.batch / each : options_.throughput ? most : 1;
      const int64_t dp = options_.dp.value_or(static_cast<int32_t>(std::min<int64_t>(all, INT32_MAX)));
      if (dp <= most && (options_.batch == 0 || dp * each == options_.batch))
        price({tp, pp, static_cast<int32_t>(dp), each});
      return;
    }
    if (options_.batch > 0 || !options_.throughput) {
      const int64_t all = std::max<int64_t>(1, options_.batch);
      // More replicas than sequences are idle; with as many sequences each, fewer replicas do the same.
      for (int32_t dp = 1; dp <= std::min<int64_t>(most, all); ++dp) {
        if (options_.dp && *options_.dp != dp) continue;
        if (all % dp == 0) price({tp, pp, dp, all / dp});
      }
      return;
    }
    const int32_t dp = options_.dp.value_or(most);
    if (dp > most) return;
    seconds_.clear();
    int64_t high = 1;
    if (!price({tp, pp, dp, 1})) return;
    while (fits({tp, pp, dp, 2 * high})) high *= 2;
    int64_t over = 2 * high;  // does not fit
    while (over - high > 1) {
      const int64_t middle = high + (over - high) / 2;
      (fits({tp, pp, dp, middle}) ? high : over) = middle;
    }
    price({tp, pp, dp, high});
    halve({tp, pp, dp, 1}, high);
  }

  // Batches between that of `low` and `high`: no more sequences than the larger, in no less time.
  void halve(GeneratePlan low, int64_t high) {
    if (high - low.batch < 2) return;
    const double time = seconds_[low.batch];
    const double most = static_cast<double>(low.dp * high * options_.work.new_tokens) / time;
    if (most <= best_ * (1 + kClose)) {
      bound_ = std::max(bound_, most);
      return;
    }
    GeneratePlan middle = low;
    middle.batch = low.batch + (high - low.batch) / 2;
    price(middle);
    halve(low, middle.batch);
    halve(middle, high);
  }

  bool fits(const GeneratePlan& plan) {
    const GenerateTime time = generate_time(model_, cluster_, options_.work, plan);
    ++result_.priced;
    return time.memory_bytes <= limit_ && (options_.kv_budget == 0 || time.kv_bytes <= options_.kv_budget);
  }

  // The best number of prompts at a time, of powers of two: so what a batch takes never falls with its size.
  // What does not fit counts for that, too. Whether any fits.
  bool price(GeneratePlan plan) {
    std::optional<FoundGenerate> best;
    double least = INFINITY;
    for (plan.prefill_batch = options_.prefill_batch.value_or(1);; plan.prefill_batch *= 2) {
      const GenerateTime time = generate_time(model_, cluster_, options_.work, plan);
      least = std::min(least, time.request_s);
      if (fits(plan) && (!best || better(time, best->time))) best = FoundGenerate{plan, time};
      if (plan.prefill_batch >= plan.batch || options_.prefill_batch) break;
    }
    seconds_[plan.batch] = least;
    if (!best) return false;
    best_ = std::max(best_, best->time.tokens_per_s);
    found_.push_back(*best);
    return true;
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const GenerateOptions& options_;
  const int64_t limit_;
  std::vector<FoundGenerate> found_;
  double best_ = 0, bound_ = 0;
  std::map<int64_t, double> seconds_;  // of the mesh at hand, by batch: no plan takes less
  GenerateResult result_;
};

}  // namespace

Result<GenerateResult> search_generate(const TransformerShape& model, const Cluster& cluster,
                                       const GenerateOptions& options) {
  if (cluster.devices.empty())
    return Status(StatusCode::kInvalidArgument, "generate: found no devices, wanted at least one");
  if (!check_one_kind(cluster).ok()) return search_generate(model, Fleet{{cluster}}, options);
  return Search(model, cluster, options).run();
}

}  // namespace tessera

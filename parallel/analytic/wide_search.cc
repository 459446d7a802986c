#include "parallel/analytic/wide_search.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>

#include "graph/base/text.h"
#include "graph/base/thread.h"
#include "parallel/analytic/wide_solver.h"
#include "parallel/analytic/wide_space.h"

namespace tessera {

namespace {

// Looked at side by side; whatever the number of threads, so that it decides nothing.
constexpr size_t kTogether = 16;

struct Node {
  double bound_s = 0;
  int64_t order = 0;  // of making: the first of equals
  bool family = false;
  StepConfigurations of;                   // a family: the mesh
  std::shared_ptr<const MeshTimes> times;  // of the mesh; in a family of one that splits blocks alike
  bool operator>(const Node& other) const {
    return bound_s != other.bound_s ? bound_s > other.bound_s : order > other.order;
  }
};

// What became of a node.
struct Outcome {
  std::vector<Node> next;
  int64_t closed_next = 0;  // configurations that would be next, but take no less than the best known
  SolvedStep solved;
  bool closed = false;  // a family: nothing of it takes less than the best known
};

void side_by_side(size_t count, int32_t threads, const std::function<void(size_t)>& work) {
  const size_t most =
      threads > 0 ? static_cast<size_t>(threads) : std::max(1U, std::thread::hardware_concurrency());
  const size_t used = std::min({most, count, size_t{16}});
  if (used < 2) {
    for (size_t i = 0; i < count; ++i) work(i);
    return;
  }
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;  // guarded by `mutex`
  const auto run = [&] {
    try {
      for (size_t i = next++; i < count; i = next++) work(i);
    } catch (...) {
      next = count;
      const std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  {
    std::vector<Thread> others;
    try {
      for (size_t i = 1; i < used; ++i) others.emplace_back(run);
    } catch (...) {  // no more threads: those that there are look at all of it
    }
    run();
  }
  if (error) std::rethrow_exception(error);
}

bool same_shape(const ForeignPlan& a, const ForeignPlan& b) {
  return a.tp == b.tp && a.dp == b.dp && a.pp == b.pp && a.cp == b.cp && a.ep == b.ep &&
         a.micro_batch == b.micro_batch && a.form == b.form && a.grid == b.grid;
}

ForeignPlan mesh_of(ForeignPlan plan) {
  plan.schedule = ForeignSchedule::k1F1B, plan.virtual_stages = 1, plan.zero = 0;
  plan.recompute = Recompute::kNone;
  return plan;
}

class Search {
 public:
  Search(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
         int64_t limit)
      : model_(model), cluster_(cluster), options_(options), limit_(limit), best_(options.most_s) {}

  Result<StepSearchResult> run(const StepSearchResult* seed) {
    std::vector<Outcome> outcomes;
    if (seed != nullptr) {
      found_.push_back(seed->best);
      for (const FoundStep& step : seed->runners_up) found_.push_back(step);
      best_ = seed->best.time.step_s;
    }
    // Other schedules of the meshes found so far come first: whatever they gain closes more.
    if (seed != nullptr) {
      std::vector<Node> first;
      for (const FoundStep& step : found_) {
        const ForeignPlan mesh = mesh_of(step.plan);
        const auto times = std::make_shared<const MeshTimes>(model_, cluster_, options_, mesh);
        for (const StepConfigurations& one : configurations_of(mesh, model_, options_)) {
          if (one.count() > 1) continue;
          if (const double bound = wide_bound(model_, cluster_, options_, one, *times); bound < best_)
            first.push_back({bound, 0, false, one, times});
        }
      }
      std::ranges::stable_sort(first, {}, &Node::bound_s);
      for (size_t i = 0; i < first.size(); i += kTogether) {
        outcomes.assign(std::min(kTogether, first.size() - i), {});
        side_by_side(outcomes.size(), options_.threads, [&](size_t k) { outcomes[k] = look(first[i + k]); });
        for (Outcome& outcome : outcomes) {
          std::optional<FoundStep>& found = outcome.solved.found;
          if (!found || found->time.step_s >= best_) continue;
          best_ = found->time.step_s;
          found_.push_back(std::move(*found));
        }
      }
    }
    const StepFamilies families = step_families(model_, cluster_, options_, best_);
    result_.configurations += static_cast<int64_t>(families.open.size()) + families.closed;
    result_.closed_by_bound += families.closed;
    bound_ = families.least_closed_s;
    size_t next_family = 0;
    std::vector<Node> batch;
    while (result_.solved < options_.most_solved) {
      batch.clear();
      while (batch.size() < kTogether) {
        const double family =
            next_family < families.open.size() ? families.open[next_family].bound_s : INFINITY;
        const double node = open_.empty() ? INFINITY : open_.top().bound_s;
        if (!(std::min(node, family) < best_)) break;
        if (family < node) {
          const StepFamily& next = families.open[next_family++];
          batch.push_back({family, 0, true, {next.plan, 1}, next.alike});
        } else {
          batch.push_back(open_.top());
          open_.pop();
        }
      }
      if (batch.empty()) break;
      outcomes.assign(batch.size(), {});
      side_by_side(batch.size(), options_.threads, [&](size_t i) { outcomes[i] = look(batch[i]); });
      const double known = best_;
      for (size_t i = 0; i < batch.size(); ++i) take(batch[i], outcomes[i], known);
    }
    const double family = next_family < families.open.size() ? families.open[next_family].bound_s : INFINITY;
    bound_ = std::min({bound_, family, open_.empty() ? INFINITY : open_.top().bound_s});
    result_.cut_off = std::min(family, open_.empty() ? INFINITY : open_.top().bound_s) < best_;
    result_.closed_by_bound += static_cast<int64_t>(families.open.size() - next_family);
    for (; !open_.empty(); open_.pop()) result_.closed_by_bound += open_.top().of.count();
    return finish();
  }

 private:
  Outcome look(const Node& node) const {
    Outcome outcome;
    const ForeignPlan& plan = node.of.plan;
    if (node.family) {
      const auto times = std::make_shared<const MeshTimes>(*node.times, options_, plan);
      outcome.closed = none_below(model_, cluster_, options_, plan, *times, limit_, best_);
      if (outcome.closed) return outcome;
      for (const StepConfigurations& of : configurations_of(plan, model_, options_))
        add_next(node, of, times, outcome);
    } else if (node.of.count() > 1) {
      outcome.closed = none_below(model_, cluster_, options_, node.of, *node.times, limit_, best_);
      if (outcome.closed) return outcome;
      StepConfigurations fewer = node.of, more = node.of;
      fewer.chunks_to = (plan.virtual_stages + node.of.chunks_to) / 2;
      more.plan.virtual_stages = fewer.chunks_to + 1;
      add_next(node, fewer, node.times, outcome), add_next(node, more, node.times, outcome);
    } else {
      outcome.solved = solve_wide(model_, cluster_, options_, plan, *node.times, limit_, best_);
    }
    return outcome;
  }

  // Part of another node, unless a closed form closes it.
  void add_next(const Node& whole, const StepConfigurations& of,
                const std::shared_ptr<const MeshTimes>& times, Outcome& outcome) const {
    const double bound = std::max(whole.bound_s, wide_bound(model_, cluster_, options_, of, *times));
    if (bound < best_ && none_below(model_, cluster_, options_, of, *times, limit_, best_))
      outcome.closed_next += of.count();
    else
      outcome.next.push_back({bound, 0, false, of, times});
  }

  // `known_s`: the best step when it was looked at.
  void take(const Node& node, Outcome& outcome, double known_s) {
    if (outcome.closed) {
      result_.closed_by_bound += node.of.count();
      bound_ = std::min(bound_, best_);
      return;
    }
    if (outcome.closed_next > 0) {
      result_.closed_by_bound += outcome.closed_next;
      if (node.family) result_.configurations += outcome.closed_next;
      bound_ = std::min(bound_, best_);
    }
    for (Node& next : outcome.next) {
      if (node.family) result_.configurations += next.of.count();
      push(std::move(next));
    }
    if (node.family || node.of.count() > 1) return;
    SolvedStep& solved = outcome.solved;
    solved.bound_s = std::max(solved.bound_s, node.bound_s);
    // Weights on the host slow down every pass; they are the last resort, a quarter at a time.
    if (solved.wants_memory && options_.offload && node.of.plan.offload_params < 4 &&
        cluster_.host_link.bytes_per_s > 0) {
      StepConfigurations next = node.of;
      ++next.plan.offload_params;
      ++result_.configurations;
      const double bound = wide_bound(model_, cluster_, options_, next, *node.times);
      push({std::max(node.bound_s, bound), 0, false, next, node.times});
    }
    if (solved.too_large) {
      ++result_.too_large;
      return;
    }
    ++result_.solved;
    bound_ = std::min(bound_, solved.bound_s);
    result_.open.push_back({node.of.plan, solved.bound_s, known_s});
    if (!solved.found) return;
    best_ = std::min(best_, solved.found->time.step_s);
    found_.push_back(std::move(*solved.found));
  }

  void push(Node node) {
    if (node.bound_s >= best_) {
      result_.closed_by_bound += node.of.count();
      bound_ = std::min(bound_, node.bound_s);
      return;
    }
    node.order = ++made_;
    open_.push(std::move(node));
  }

  Result<StepSearchResult> finish() {
    if (found_.empty() && std::isfinite(options_.most_s)) {
      result_.best.time.step_s = INFINITY;
      result_.bound_s = std::min(bound_, options_.most_s);
      return std::move(result_);
    }
    if (found_.empty())
      return Status(StatusCode::kOutOfMemory,
                    format("no plan fits {} a device, whatever is sharded, recomputed or left on the host",
                           bytes_text(limit_)));
    std::ranges::stable_sort(found_, {}, [](const FoundStep& step) { return step.time.step_s; });
    result_.best = found_[0];
    for (size_t i = 1; i < found_.size() && result_.runners_up.size() < options_.runners_up; ++i) {
      const auto alike = [&](const FoundStep& other) { return same_shape(other.plan, found_[i].plan); };
      if (!alike(result_.best) && std::ranges::none_of(result_.runners_up, alike))
        result_.runners_up.push_back(found_[i]);
    }
    const double best = result_.best.time.step_s;
    result_.bound_s = std::min(bound_, best);
    result_.gap = (best - result_.bound_s) / best;
    return std::move(result_);
  }

  const TransformerShape& model_;
  const Cluster& cluster_;
  const StepSearchOptions& options_;
  const int64_t limit_;
  std::priority_queue<Node, std::vector<Node>, std::greater<>> open_;
  std::vector<FoundStep> found_;
  double best_, bound_ = INFINITY;
  int64_t made_ = 0;
  StepSearchResult result_;
};

}  // namespace

Result<StepSearchResult> search_wide(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options, const StepSearchResult* seed,
                                     int64_t limit) {
  return Search(model, cluster, options, limit).run(seed);
}

}  // namespace tessera

// RecomputeSet of a plan: single activations recomputed for backward, chosen on the
// program that keeps everything: its live bytes over time, and the cost of each value.
//
// It forecasts the program with the set (recomputed values live briefly before use;
// slots are repacked), so the caller lowers the set and reports the forecast's error.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/plan.h"
#include "graph/program.h"
#include "parallel/search/rematerialization.h"

namespace tessera {

struct EntrySpec;

class RecomputeOptions {
 public:
  // `program`: its entry 0 is the lowered `entry`, whose plan recomputes nothing; offloaded values are
  // back when they are read. `may_repeat`: activations of the entry's graph that may be recomputed.
  static Result<RecomputeOptions> of(const EntrySpec& entry, const Program& program, const Cluster& cluster,
                                     const std::function<bool(TensorId)>& may_repeat);

  // Pipeline stages on the same devices, in sequence; one without a pipeline.
  size_t places() const { return places_.size(); }
  int32_t rank(size_t place) const { return places_[place].rank; }
  // Peak of a place's rank when everything is kept, with slots as they are.
  int64_t live_bytes(size_t place) const { return places_[place].live_bytes; }

  // Waiting: a value that waits for backward on a place's rank.
  struct Waiting {
    std::vector<TensorId> tensors;  // of the entry's graph, with its bytes
    int64_t bytes = 0;              // over all its micro-batches in a step
    int32_t first = 0;              // instruction after which it waits
    double idle_s = 0;              // waiting time, at least, by other work
    double seconds = 0;             // to recompute it alone; infinite if not allowed
  };
  std::span<const Waiting> waiting(size_t place) const { return places_[place].waiting; }

  struct Set {
    std::vector<TensorId> tensors;  // sorted, as Plan::recompute has them
    // Choices by place; dropping some of them leaves a valid set.
    std::vector<std::vector<bool>> released;
    double seconds = 0;  // of recomputation, over the places' ranks
  };
  // The cheapest known set that keeps every place within its budget; nullopt if all values do not suffice.
  std::optional<Set> choose(std::span<const int64_t> budgets) const;
  // The set of the released values.
  Set set_of(std::vector<std::vector<bool>> released) const;
  // Released values, most expensive first: (place, value).
  std::vector<std::pair<size_t, size_t>> dearest(const Set& set) const;

 private:
  struct Place {
    int32_t rank = 0;
    int64_t live_bytes = 0;
    std::vector<int64_t> held;
    std::vector<double> works;
    std::vector<RematerializableValue> values;
    std::vector<std::vector<TensorId>> tensors;  // by value: with everything recomputed on the way
    std::vector<Waiting> waiting;
  };
  std::vector<Place> places_;
  friend class RecomputeFinder;
};

}  // namespace tessera

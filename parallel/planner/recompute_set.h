// RecomputeSet of a plan: which single activations are computed again for backward, found on the program that
// the plan lowers to when everything is kept: what that one holds, when, and what it took to make.
//
// It is a forecast of the program with the set (what is made again lives a little before it is read; slots
// are packed anew), so whoever asks lowers the set and says by how much it was off.
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
  // `program`: entry 0 of it is the lowered `entry`, whose plan recomputes nothing; what it offloads is there
  // when it is read. `may_repeat`: activations (of the entry's graph) that may be computed again.
  static Result<RecomputeOptions> of(const EntrySpec& entry, const Program& program, const Cluster& cluster,
                                     const std::function<bool(TensorId)>& may_repeat);

  // Pipeline stages on the same devices, one after another; one without a pipeline.
  size_t places() const { return places_.size(); }
  int32_t rank(size_t place) const { return places_[place].rank; }
  // Most that a rank of the place holds when everything is kept, slots as they are.
  int64_t live_bytes(size_t place) const { return places_[place].live_bytes; }

  // A value that waits for backward on the rank of a place.
  struct Waiting {
    std::vector<TensorId> tensors;  // of the entry's graph, that show its bytes
    int64_t bytes = 0;              // of all its micro-batches that a step makes
    int32_t first = 0;              // instruction from which it waits
    double idle_s = 0;              // how long, at least: what else runs meanwhile
    double seconds = 0;             // of making it again by itself; infinite where that is not allowed
  };
  std::span<const Waiting> waiting(size_t place) const { return places_[place].waiting; }

  struct Set {
    std::vector<TensorId> tensors;  // sorted, as Plan::recompute has them
    // What was chosen one by one, by place: dropping some of them leaves a set that can be lowered.
    std::vector<std::vector<bool>> released;
    double seconds = 0;  // of computing it again, all ranks of the places
  };
  // The cheapest known with which no place holds more than its budget; nothing where all do not suffice.
  std::optional<Set> choose(std::span<const int64_t> budgets) const;
  // The set of what is released.
  Set set_of(std::vector<std::vector<bool>> released) const;
  // Released ones, dearest first: (place, value).
  std::vector<std::pair<size_t, size_t>> dearest(const Set& set) const;

 private:
  struct Place {
    int32_t rank = 0;
    int64_t live_bytes = 0;
    std::vector<int64_t> held;
    std::vector<double> works;
    std::vector<RematerializableValue> values;
    std::vector<std::vector<TensorId>> tensors;  // by value: with what has to be made again on the way
    std::vector<Waiting> waiting;
  };
  std::vector<Place> places_;
  friend class RecomputeFinder;
};

}  // namespace tessera

// Best-first search, by which all plans are found. Parts of a space are open, each with a lower bound of its cost; the one
// with the least rank is evaluated next, and may open others. A part is closed when its bound reaches the cost to beat.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "graph/base/cancellation.h"
#include "graph/base/result.h"

namespace tessera {

template <class Part>
struct OpenPart {
  Part part;
  double bound = 0;
  std::pair<double, double> rank;
  size_t order = 0;  // ties of ranks: the first opened
};

template <class Part>
class OpenParts {
 public:
  using Open = OpenPart<Part>;

  bool empty() const { return open_.empty(); }
  const std::vector<Open>& all() const { return open_; }
  const Open& next() const { return open_.front(); }
  void push(Part part, double bound) { put_back({std::move(part), bound, {bound, 0}, order_++}); }
  void put_back(Open it) {
    open_.push_back(std::move(it));
    std::ranges::push_heap(open_, is_later);
  }
  Open take() {
    std::ranges::pop_heap(open_, is_later);
    Open it = std::move(open_.back());
    open_.pop_back();
    return it;
  }
  // By ranks other than bounds, or that have changed.
  template <class RankOf>
  void rank_again(RankOf rank_of) {
    for (Open& it : open_) it.rank = rank_of(it);
    std::ranges::make_heap(open_, is_later);
  }

 private:
  static bool is_later(const Open& a, const Open& b) { return a.rank != b.rank ? a.rank > b.rank : a.order > b.order; }

  std::vector<Open> open_;  // a heap
  size_t order_ = 0;
};

// BoundTrust: the factor on bounds that their properties leave, since some cost was found below its bound.
struct BoundTrust {
  double tolerance = 0;  // of costs, as a share
  double factor = 1;
  void observe(double bound, double cost) {
    if (cost < bound * factor * (1 - tolerance)) factor = cost / bound;
  }
};

// An evaluator has kByBound, whether ranks are bounds, and
//   may_continue()     false: its budget is spent
//   is_closed(open)    whether the part's bound reaches the cost to beat
//   at_once()          how many parts are prepared together
//   prepare(parts)     before they are evaluated one by one
//   evaluate(open)     prices the part, or opens what it consists of
// Parts that are taken and closed are appended to `closed`.
template <class Evaluator, class Part>
Status search_best_first(Evaluator& evaluator, OpenParts<Part>& open, std::vector<OpenPart<Part>>& closed) {
  while (!open.empty()) {
    cancellation_point();
    TSR_ASSIGN_OR_RETURN(const bool goes_on, evaluator.may_continue());
    if (!goes_on) return {};
    std::vector<OpenPart<Part>> next;
    while (next.size() < evaluator.at_once() && !open.empty()) {
      if (!evaluator.is_closed(open.next())) {
        next.push_back(open.take());
      } else {
        if (Evaluator::kByBound) break;
        closed.push_back(open.take());
      }
    }
    if (Evaluator::kByBound && next.empty()) return {};
    evaluator.prepare(next);
    for (OpenPart<Part>& it : next)
      if (Evaluator::kByBound && evaluator.is_closed(it))
        open.put_back(std::move(it));
      else
        evaluator.evaluate(it);
  }
  return {};
}

}  // namespace tessera

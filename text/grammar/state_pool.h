// StatePool: the reached states of a grammar's automaton, each stored once.
//
// A configuration is a node, the repetitions of its rule so far, and its continuation: again a
// set of configurations, which makes stacks shared and persistent (a graph-structured stack, as
// in Scott and Johnstone's GLL). A state is a set of configurations too. Equal sets have one
// number, so transitions are cached and states are compared by number. Only grows; one thread.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "text/grammar/automaton.h"

namespace tessera::grammar {

using StateId = uint32_t;
inline constexpr StateId kDeadState = 0;  // no configuration
inline constexpr StateId kEndOfText = 1;  // continuation of the root rule
inline constexpr StateId kOpaqueState =
    2;  // unknown continuation: for masks independent of the caller

struct Configuration {
  uint32_t node = 0;
  uint32_t repetitions = 0;
  StateId after = 0;
  auto operator<=>(const Configuration&) const = default;
};

class StatePool {
 public:
  explicit StatePool(const Automaton& automaton);

  StateId start();
  StateId intern(std::span<const Configuration> configurations);  // in any order
  // The state after another byte; kDeadState if forbidden.
  StateId step(StateId state, uint8_t byte) {
    const uint32_t row = states_[state].row;
    if (row != kNoRow)
      if (const StateId next = rows_[row + automaton_.class_of[byte]]; next != kUnknown) return next;
    return find_step(state, automaton_.class_of[byte]);
  }
  // Nodes that take bytes, and the end: kAcceptNode before kEndOfText or kOpaqueState.
  std::span<const Configuration> configurations(StateId state) const {
    return std::span(configurations_).subspan(states_[state].begin, states_[state].count);
  }
  bool can_end(StateId state) const {
    return states_[state].can_end;
  }  // whether the text may end, or the rule within its caller
  bool can_go_on(StateId state) const { return states_[state].count > (states_[state].can_end ? 1u : 0u); }

  // Copies a state of another pool of the same automaton. `known` caches copied states.
  StateId adopt(const StatePool& other, StateId state, std::vector<StateId>& known);

  size_t bytes() const;
  uint64_t work() const { return work_; }  // configurations visited so far
  // Whether a set exceeded kMostConfigurations, or a step kMostStepWork, since the last
  // call; all steps since then returned kDeadState. Ambiguous grammars cause this.
  bool take_exhausted() { return std::exchange(is_exhausted_, false); }
  const Automaton& automaton() const { return automaton_; }

  static constexpr size_t kMostConfigurations = size_t{1} << 14;  // of one state
  static constexpr uint64_t kMostStepWork = uint64_t{1} << 18;    // configurations visited per byte

 private:
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr StateId kUnknown = UINT32_MAX;
  struct State {
    uint64_t begin = 0;
    uint32_t count = 0;
    uint32_t row = kNoRow;  // transitions by class; allocated on first use
    bool can_end = false;
  };

  // VisitedSet: configurations visited in one step, hashed.
  class VisitedSet {
   public:
    VisitedSet() : slots_(64) {}
    void clear();
    bool insert(const Configuration& configuration);  // true if new

   private:
    struct Slot {
      Configuration configuration;
      uint32_t round = 0;
    };
    std::vector<Slot> slots_;
    uint32_t round_ = 1;
    size_t count_ = 0;
  };

  StateId find_step(StateId state, uint8_t byte_class);
  // The closure of `seeds_` without bytes.
  StateId close();
  void visit(bool is_predicted);
  void predict(uint32_t rule, const Configuration& caller);
  StateId intern_sorted(std::span<const Configuration> configurations);
  void grow_table();

  const Automaton& automaton_;
  std::vector<Configuration> configurations_;
  std::vector<State> states_;
  std::vector<StateId> rows_;
  std::vector<StateId> table_;  // open addressing; kUnknown marks free entries
  std::vector<uint32_t> rule_of_rank_;
  uint64_t work_ = 0, most_work_ = 0;  // most_work_: of the current step
  bool is_exhausted_ = false;
  // Scratch of one step.
  std::vector<Configuration> seeds_, found_;
  VisitedSet visited_;
  std::vector<std::vector<Configuration>> callers_;  // by rule
  std::vector<uint32_t> called_ranks_;               // heap, lowest first
};

}  // namespace tessera::grammar

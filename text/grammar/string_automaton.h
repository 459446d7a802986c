// StringAutomaton: a regular language as a deterministic automaton
// over characters; every state reaches an end. Plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "text/grammar/json_text.h"
#include "text/grammar/language.h"

namespace tessera::grammar {

struct StringAutomaton {
  struct Edge {
    CharacterSet characters;
    uint32_t target = 0;
  };
  struct State {
    std::vector<Edge> edges;
    bool accepts = false;
  };
  std::vector<State> states;  // start state first; empty: the empty language

  static constexpr size_t kMostStates = size_t{1} << 14;
  // kUnsupported for too many states.
  static Result<StringAutomaton> of(Languages& languages, LanguageId language);

  // Bounds on text lengths in characters; kUnbounded: none.
  uint32_t shortest() const;
  uint32_t longest() const;
};

// The texts of minimum to maximum characters. If that takes too many rules,
// longer texts are dropped; kUnsupported if none remain. May be empty.
Result<ExpressionId> write_automaton(Expressions& out, const StringAutomaton& automaton, TextForm form,
                                     uint32_t minimum, uint32_t maximum);

}  // namespace tessera::grammar

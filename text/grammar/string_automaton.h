// StringAutomaton: a regular language as a deterministic automaton over characters, from each state of which a text can
// end. Plain data.
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
  std::vector<State> states;  // the first one is where texts begin; none: no text is in the language

  static constexpr size_t kMostStates = size_t{1} << 14;
  // kUnsupported for more states.
  static Result<StringAutomaton> of(Languages& languages, LanguageId language);

  // Bounds of the texts' lengths, in characters; kUnbounded where there is none.
  uint32_t shortest() const;
  uint32_t longest() const;
};

// Its texts of minimum to maximum characters. Where that takes too many rules, longer texts are left out; kUnsupported
// where none are left then. Perhaps nothing.
Result<ExpressionId> write_automaton(Expressions& out, const StringAutomaton& automaton, TextForm form,
                                     uint32_t minimum, uint32_t maximum);

}  // namespace tessera::grammar

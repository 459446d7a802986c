// Pieces in which ranks hold tensors: as few as the layout has, however many rows lie before what is split.
#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

TEST_CASE("parameters and state lie in two pieces at most where a vocabulary divides by nothing") {
  constexpr int64_t kBatch = 4, kTokens = 32;
  size_t programs = 0;
  for (const char* model : {"llama:L=1,C=32,H=4,F=48,V=4099,T=32", "gpt2:L=1,C=32,H=4,V=4099,T=32"}) {
    const Graph step = training_step(model).value();
    for (const char* words : {"cp=ring:2", "cp=ring:2:contiguous", "cp=gather:2", "cp=ulysses:2", "dp=2",
                              "dp=2,cp=ring:2", "tp=2,cp=ring:2"})
      for (const char* zero : {"", ",zero=1", ",zero=2", ",zero=3", ",zero=3,mb=1", ",zero=3,chunks=2"}) {
        const std::string parallel = std::string(words) + zero;
        const auto program = program_of(step, parallel, kBatch, kTokens);
        if (!program.ok()) continue;
        CAPTURE(parallel);
        ++programs;
        for (const RankProgram& rank : program->ranks) {
          for (const auto* bindings : {&rank.parameters, &rank.states})
            for (const Binding& it : *bindings) {
              CAPTURE(it.name);
              CHECK(it.pieces.size() <= 2);
            }
          for (const Binding& it : rank.entries[0].inputs) CHECK(static_cast<int64_t>(it.pieces.size()) <= 2 * kBatch);
        }
      }
  }
  CHECK(programs > 30);
}

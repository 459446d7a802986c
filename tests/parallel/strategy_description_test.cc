// Descriptions of strategies as sentences.
#include "parallel/strategy/strategy_description.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"

using namespace tessera;

TEST_CASE("a strategy in words says how model and batch are dealt out, and what each word is for") {
  CHECK(join(describe_strategy("tp=2,dp=4,pp=8:1f1b,mb=1,sp,zero=1", 32, 8), "\n") ==
        "8 groups of layers, one after the other (pp=8), each split over 2 devices, each with a part of "
        "every matrix (tp=2), 4 copies of all "
        "this, each with sequences of its own (dp=4): 64 devices.\n"
        "The 32 sequences of a step go through in 8 rounds of 4 (micro-batches; mb=1: 1 sequence for each "
        "copy).\n"
        "A full pipeline takes one round back for each that it takes forward (1f1b), so that few wait in "
        "memory.\n"
        "The optimizer's state is divided among the copies instead of repeated in each (zero=1).\n"
        "Between matrices each device holds only its part of every sequence (sp).");
  CHECK(join(describe_strategy("single", 1, 1), "\n") ==
        "One device holds the whole model and does everything.\nThe 1 sequence of a step goes through at "
        "once.");
}

TEST_CASE(
    "every word of a strategy that changes something has its sentence; words of other software have none") {
  for (const char* word :
       {"pp=4:gpipe", "pp=4:interleaved:2", "pp=4:zb-h1", "pp=4:zb-h2", "pp=4:zb-v", "dp=2,zero=2",
        "dp=2,zero=3", "cp=ring:2", "ep=2", "dp=2,zero=3,chunks=2", "dp=2,zero=3,keep", "dp=2,owt",
        "recompute=full", "recompute=some", "offload=params@host", "offload=grads@file",
        "offload=optimizer@host", "offload=activations@host"}) {
    CAPTURE(word);
    const std::string said = join(describe_strategy(word, 8, 2), "\n"),
                      plain = join(describe_strategy("dp=2", 8, 2), "\n");
    const std::string last = split(word, ',').back();
    const std::string name = last.substr(last.find(':') == std::string::npos ? 0 : last.find(':') + 1);
    const std::string key =
        last.starts_with("pp=") ? name.substr(0, name.find(':')) : last.substr(0, last.find_first_of("=:@"));
    CHECK_MESSAGE(said.find(key) != std::string::npos, said);
    CHECK(said != plain);
  }
  CHECK(describe_strategy("tp=1,dp=2,pp=1,mb=1,shard=attention:4", 8, 4).empty());
}

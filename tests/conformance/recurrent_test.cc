// Recurrent layers under plans that split their heads, batch, blocks and sequence.
#include <doctest/doctest.h>

#include <string>

#include "tests/conformance/parity_harness.h"

using namespace tessera;
using namespace tessera::parity;

TEST_SUITE("parity variants") {
  TEST_CASE("recurrent layers train alike however they are split") {
    print_header();
    for (const char* model :
         {"qwen3_5:L=2,C=8,H=4,KV=2,D=4,R=2,F=6,HS=4,GS=2,VS=3,KS=2,V=11,T=16,attention_every=2,rope_half",
          "granitehybrid:L=2,C=8,H=2,F=6,HS=4,GS=1,VS=3,KS=2,V=11,T=16,attention_every=2,conv_bias"})
      for (const char* words : {"dp=3", "tp=2,sp", "cp=ring:2", "cp=gather:3", "cp=ulysses:2", "dp=2,cp=ring:2,tp=2,sp",
                                "dp=2,zero=3,mb=2,recompute=full", "pp=2:1f1b,mb=3"}) {
        const Job job{.model = model};
        check(measure(job, words, {}, std::string(model).substr(0, 7) + ": " + words));
      }
  }
}

// Families with what Llama does not have: windows, soft caps, scaled and partial rotations, biases, norms of heads.
// Each trains and generates over devices as on one. All of them with TESSERA_TEST_FULL=1.
#include <span>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/full.h"

using namespace capi_test;

namespace {

constexpr int64_t kSteps = 5, kTokens = 24;

struct Family {
  const char* model;
  bool has_experts = false;
};
constexpr Family kFamilies[] = {
    {"gemma3:L=4,C=32,H=4,KV=2,D=16,F=48,V=256,T=48,windows=7|0|7|0,rope_rows=1,softcap=20,logit_softcap=15,"
     "tied,rope_half"},
    {"qwen3moe:L=2,C=32,H=4,KV=2,D=12,F=24,E=4,K=2,V=256,T=48,rope_half,normalize=0,qkv_bias", true},
    {"gemma4:L=4,C=32,H=4,KV=2,D=8,F=48,V=256,T=48,windows=7|0|7|0,head_sizes=8|16|8|16,ffn_widths=48|48|96|96,shared_kv=2,P=6,"
     "rope_rows=1,tied,rope_half"},
    {"gemma4:L=2,C=32,H=4,KV=2,D=8,F=24,V=256,T=48,windows=7|0,head_sizes=8|16,kv_heads=2|1,key_values=0|1,logit_softcap=15,E=4,K=2,"
     "FD=48,tied,rope_half",
     true},
    {"llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=48,R=4,rope_rows=1,rope_magnitude=1.2,qkv_bias,o_bias,mlp_bias,"
     "rope_half"},
    {"llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=48,window=9,tied"},
    {"qwen2:L=2,C=32,H=4,KV=2,F=48,V=256,T=48,windows=0|11,rope_half"},
    {"qwen3:L=2,C=32,H=4,KV=2,D=12,F=48,V=256,T=48,tied,rope_half"},
    {"gemma2:L=2,C=32,H=4,KV=2,D=16,F=48,V=256,T=48,window=7,softcap=20,logit_softcap=15,attention_scale=0.3,"
     "tied,rope_half"},
    {"phi3:L=2,C=32,H=4,F=48,V=256,T=48,R=4,rope_half"},
    {"ministral3:L=4,C=32,H=4,KV=2,F=48,V=256,T=48,query_beta=0.3,query_context=5,tied,rope_half"},
    {"lfm2:L=4,C=32,H=4,KV=2,F=48,V=256,T=48,attention_every=2,tied,rope_half"},
    {"lfm2moe:L=4,C=32,H=4,KV=2,F=24,FD=48,E=4,K=2,V=256,T=48,attention_every=2,expert_layers=0|1|1|1,expert_scale=1.5,tied,rope_half", true},
    {"qwen3_5:L=4,C=32,H=4,KV=2,D=12,R=4,F=48,HS=8,GS=4,VS=8,KS=6,V=256,T=48,attention_every=2,tied,rope_half"},
    {"granitehybrid:L=4,C=32,H=4,KV=2,F=48,HS=8,GS=2,VS=8,KS=6,V=256,T=48,attention_every=2,conv_bias,tied,rope_half"},
    {"nemotron_h:L=4,C=32,H=4,KV=2,D=8,F=48,HS=8,GS=2,VS=8,KS=6,V=256,T=48,halves=1|2|1|1,recurrent=1|0|0|1,conv_bias"},
    {"nemotron_h:L=4,C=32,H=4,KV=2,D=8,F=24,FD=48,E=4,K=2,FS=20,M=16,HS=8,GS=2,VS=8,KS=6,V=256,T=48,halves=1|2|1|2,recurrent=1|0|0|0,"
     "expert_layers=0|1|0|1",
     true},
    {"qwen3_5moe:L=2,C=32,H=4,KV=2,D=12,R=4,F=24,E=4,K=2,FS=48,HS=8,GS=4,VS=8,KS=6,V=256,T=48,attention_every=2,rope_half", true},
    {"granitehybridmoe:L=2,C=32,H=4,KV=2,F=24,E=4,K=2,FS=48,HS=8,GS=2,VS=8,KS=6,V=256,T=48,recurrent=1|0,conv_bias,rope_half", true},
    {"smollm3:L=4,C=32,H=4,KV=2,F=48,V=256,T=48,rope_layers=1|1|1|0,tied,rope_half"},
    {"moe:L=2,C=32,H=4,KV=2,F=24,E=4,K=2,V=256,T=48,window=9,capacity=0,tied", true},
    {"gpt2:L=2,C=32,H=4,V=256,T=48"},
    {"gemma:L=2,C=32,H=4,KV=2,D=16,F=48,V=256,T=48,tied,rope_half"},
    {"olmo2:L=2,C=32,H=4,KV=2,F=48,V=256,T=48,windows=9|0,window_theta=1000,rope_half"},
    {"granite:L=2,C=32,H=4,KV=2,F=48,V=256,T=48,embedding_scale=3,residual_scale=0.5,logit_scale=0.25,tied"},
    {"seed_oss:L=2,C=32,H=4,KV=2,D=12,F=48,V=256,T=48,qkv_bias,o_bias,rope_half"},
    {"qwen2moe:L=2,C=32,H=4,F=24,E=4,K=2,FS=48,V=256,T=48,rope_half", true},
    {"gpt-oss:L=2,C=32,H=4,KV=2,D=16,F=24,E=4,K=2,V=256,T=48,window=9,rope_half", true},
    {"deepseek2:L=2,C=32,H=4,D=24,R=8,KA=24,VD=12,F=24,FD=48,E=4,K=2,FS=24,V=256,T=48,expert_layers=0|1",
     true},
    {"deepseek2:L=2,C=32,H=4,D=24,R=8,KA=24,QA=20,F=24,E=4,K=2,FS=24,V=256,T=48,expert_sigmoid,groups=2,"
     "groups_used=1,expert_scale=1.5",
     true},
};

struct Result {
  std::vector<double> losses;
  std::vector<int32_t> tokens;
};

// Losses of a few steps, and what the model then continues, greedily.
Result result_of(const Runtime& rt, const char* description, const char* devices, const std::string& training,
                 const char* generation_devices, const std::string& generation) {
  const Model model = described_with_bytes(description, 7);
  const Dataset data = repeated_text("the tiles of one mosaic lie side by side; ", 40, 32, 0);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), data.get(),
                     options({{"devices", std::string(devices)},
                              {"parallel", training},
                              {"batch", 4},
                              {"steps", kSteps},
                              {"lr", 1e-2}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  Result result;
  for (int64_t i = 0; i < kSteps; ++i) result.losses.push_back(one_step(trainer));
  ok(tsr_trainer_store(trainer.get(), model.get()));

  tsr_generator* writer = nullptr;
  ok(tsr_generator_new(rt.get(), model.get(),
                       options({{"devices", std::string(generation_devices)},
                                {"parallel", generation},
                                {"temperature", 0.0},
                                {"context", 48},
                                {"max_tokens", kTokens}})
                           .get(),
                       &writer));
  const Generator generator(writer);
  const std::string prompt = "the tiles of ";
  ok(tsr_generator_start(generator.get(), prompt.data(), prompt.size()));
  tsr_piece piece{};
  piece.struct_size = sizeof piece;
  while (piece.kind != TSR_END) {
    ok(tsr_generator_next(generator.get(), -1, &piece));
    if (piece.token >= 0 && piece.kind != TSR_END) result.tokens.push_back(piece.token);
  }
  return result;
}

}  // namespace

TEST_CASE("families train and generate over devices as on one") {
  const Runtime rt = runtime();
  size_t count = tessera::test::full() ? std::size(kFamilies) : 2;
  for (const Family& family : std::span(kFamilies).first(count)) {
    INFO(family.model);
    const Result alone = result_of(rt, family.model, "cpu:1", "", "cpu:1", "");
    CHECK(alone.losses.back() < alone.losses.front());
    CHECK(alone.tokens.size() == static_cast<size_t>(kTokens));
    struct Form {
      const char *training, *generation_devices, *generation;
    };
    const Form forms[] = {{"tp=2,dp=2,zero=2", "cpu:2", "tp=2"},
                          {"pp=2,tp=2,mb=2", "cpu:4", "pp=2,tp=2"},
                          {family.has_experts ? "ep=2,dp=2,zero=1" : "cp=ring:2,dp=2", "cpu:2",
                           family.has_experts ? "ep=2" : "pp=2"}};
    for (const Form& form : forms) {
      INFO(form.training);
      const Result spread =
          result_of(rt, family.model, "cpu:4", form.training, form.generation_devices, form.generation);
      // Sums are taken in another order: f32 losses of a few steps agree to some 1e-5.
      for (size_t i = 0; i < alone.losses.size(); ++i)
        CHECK(spread.losses[i] == doctest::Approx(alone.losses[i]).epsilon(2e-4));
      CHECK(spread.tokens == alone.tokens);
    }
  }
}

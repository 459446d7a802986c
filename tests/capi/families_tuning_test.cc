// Families with recurrent layers, with shared keys and values, and with experts: full training, adapters on the matrices of every
// kind of block, and adapters over blocks of 8 bits, under every parallel form as on one device, resumed on others. All with
// TESSERA_TEST_FULL=1, else one form each of some.
#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/preference_training.h"
#include "tests/capi/small_training.h"
#include "tests/capi/training_forms.h"
#include "tests/full.h"

using namespace capi_test;

namespace {

struct Family {
  const char* name;
  const char* model;
  bool has_experts = false;
  double tolerance = 1e-5;
  bool has_single_head = false;  // a layer with one KV head, which cp=ulysses does not divide
};
// Widths are multiples of 64, so that two devices have whole blocks of 32 each.
constexpr Family kFamilies[] = {
    {"lfm2", "lfm2:L=4,C=64,H=4,KV=2,F=128,V=256,T=32,attention_every=2,tied,rope_half"},
    {"qwen3_5",
     "qwen3_5:L=4,C=64,H=4,KV=2,D=16,R=8,F=128,HS=8,GS=4,VS=8,KS=8,V=256,T=32,attention_every=2,tied,rope_half"},
    {"granitehybrid",
     "granitehybrid:L=4,C=64,H=4,KV=2,F=128,HS=8,GS=2,VS=8,KS=8,V=256,T=32,attention_every=2,conv_bias,tied,rope_half"},
    {"gemma4",
     "gemma4:L=4,C=64,H=4,KV=2,D=16,F=128,V=256,T=32,windows=7|0|7|0,head_sizes=16|32|16|32,ffn_widths=128|128|256|256,"
     "shared_kv=2,P=32,rope_rows=1,tied,rope_half",
     false, 1e-4},  // on one device, one ulp of the parameters becomes 4e-5 in three steps, with adapters 2e-4
    {"nemotron_h",
     "nemotron_h:L=4,C=64,H=4,KV=2,D=16,F=128,HS=8,GS=2,VS=8,KS=8,V=256,T=32,halves=1|2|1|1,recurrent=1|0|0|1,conv_bias"},
    {"qwen3moe", "qwen3moe:L=2,C=64,H=4,KV=2,D=16,F=64,E=4,K=2,V=256,T=32,rope_half", true},
    {"qwen3_5moe",
     "qwen3_5moe:L=2,C=64,H=4,KV=2,D=16,F=64,E=4,K=2,FS=64,HS=8,GS=4,VS=8,KS=8,V=256,T=32,attention_every=2,rope_half", true},
    {"granitehybridmoe",
     "granitehybridmoe:L=2,C=64,H=4,KV=2,F=64,E=4,K=2,FS=64,HS=8,GS=2,VS=8,KS=8,V=256,T=32,recurrent=1|0,conv_bias,rope_half",
     true},
    {"nemotron_h_moe",
     "nemotron_h:L=4,C=64,H=4,KV=2,D=16,F=64,FD=64,E=4,K=2,FS=64,M=64,HS=8,GS=2,VS=8,KS=8,V=256,T=32,halves=1|2|1|2,"
     "recurrent=1|0|0|0,expert_layers=0|1|0|1",
     true},
    {"gemma4, experts",
     "gemma4:L=2,C=64,H=4,KV=2,D=16,F=64,V=256,T=32,windows=7|0,head_sizes=16|32,kv_heads=2|1,key_values=0|1,E=4,K=2,FD=128,tied,"
     "rope_half",
     true, 1e-4, true},  // one ulp of the parameters becomes 1.4e-5 with adapters
};

constexpr ParallelForm kForms[] = {{"cpu:2", "dp=2"},       {"cpu:2", "tp=2"},         {"cpu:2", "pp=2,mb=2"},
                                   {"cpu:2", "dp=2,zero=3"}, {"cpu:2", "tp=2,sp"},      {"cpu:2", "cp=ring:2"},
                                   {"cpu:2", "cp=ulysses:2"}, {"cpu:4", "dp=2,tp=2,zero=3"}};
constexpr ParallelForm kExpertForm = {"cpu:2", "ep=2"};

enum class Method : uint8_t { kFull, kAdapters, kAdaptersOverBlocks };
constexpr const char* kMethodNames[] = {"full", "LoRA", "QLoRA q8_0"};

// The blocks with at least one parameter whose name has this ending.
std::set<std::string> blocks_with(const Model& model, std::string_view ending) {
  size_t count = 0;
  ok(tsr_model_parameter_count(model.get(), &count));
  std::set<std::string> blocks;
  for (size_t i = 0; i < count; ++i) {
    const std::string name = short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
    if (name.starts_with("block.") && name.ends_with(ending)) blocks.insert(name.substr(0, name.find('.', 6)));
  }
  return blocks;
}

Model model_of(const Family& family, Method method, const Scratch& scratch) {
  Model model = described_with_bytes(family.model, 5);
  if (method == Method::kFull) return model;
  tsr_model* made = nullptr;
  if (method == Method::kAdaptersOverBlocks) {
    const std::string path = scratch / "blocks.tsr";
    ok(tsr_model_quantize(nullptr, model.get(), path.c_str(), options({{"type", std::string("q8_0")}, {"pure", 1}}).get(), nullptr));
    ok(tsr_model_load(path.c_str(), &made));
    model.reset(made);
  }
  const std::set<std::string> blocks = blocks_with(model, "");
  ok(tsr_model_add_adapters(model.get(), options({{"rank", 4}, {"alpha", 8.0}}).get(), &made));
  model.reset(made);
  CHECK(blocks_with(model, ".lora_a") == blocks);  // every kind of block has matrices with adapters
  return model;
}

Dataset data_of(const std::string& path) {
  tsr_dataset* made = nullptr;
  ok(tsr_dataset_new_file(path.c_str(), byte_tokenizer().get(),
                          options({{"seq", 2 * kAnswerTokens}, {"packing", std::string("bfd")}, {"append_end", 0}, {"eval_fraction", 0.25}})
                              .get(),
                          &made));
  return Dataset(made);
}

// Rows of several examples each: states are reset within them.
void check_family(const Family& family, Method method, std::span<const ParallelForm> forms, WorstDeviation& worst) {
  CAPTURE(std::string(family.model));
  CAPTURE(std::string(kMethodNames[static_cast<size_t>(method)]));
  const Scratch scratch;
  const Runtime rt = runtime();
  std::ofstream rows(scratch / "rows.jsonl");
  for (int i = 0; i < 32; ++i)
    rows << R"({"prompt": ")" << preference_text(3 + i % 4, i) << R"(", "completion": ")" << preference_text(5 + i % 6, i + 30)
         << "\"}\n";
  rows.close();
  const Model model = model_of(family, method, scratch);
  const Dataset data = data_of(scratch / "rows.jsonl");
  const auto trainer = [&](const ParallelForm& form, Error* refusal) {
    tsr_trainer* made = nullptr;
    *refusal = take(tsr_trainer_new(rt.get(), model.get(), data.get(),
                                    options({{"devices", std::string(form.devices)},
                                             {"parallel", std::string(form.parallel)},
                                             {"optimizer", std::string("sgd")},
                                             {"lr", 0.1},
                                             {"warmup", 0},
                                             {"batch", 4}})
                                        .get(),
                                    &made));
    return Trainer(made);
  };
  const auto is_refused = [&](const ParallelForm& form) {
    return family.has_single_head && std::string_view(form.parallel).starts_with("cp=ulysses");
  };
  check_forms({model, trainer, is_refused, {.value = family.tolerance}}, forms,
              [&](const char* name) { return scratch / name; }, worst);
}

}  // namespace

TEST_CASE("recurrent layers, shared keys and experts are tuned by every method under every form as on one device") {
  WorstDeviation worst;
  size_t trainings = 0;
  for (size_t i = 0; i < std::size(kFamilies); ++i)
    for (const Method method : {Method::kFull, Method::kAdapters, Method::kAdaptersOverBlocks}) {
      const Family& family = kFamilies[i];
      if (!tessera::test::full() && (i % 3 != 0 || i / 3 % 3 != static_cast<size_t>(method))) continue;
      std::vector<ParallelForm> forms(std::begin(kForms), std::end(kForms));
      if (family.has_experts) forms.push_back(kExpertForm);
      if (!tessera::test::full()) forms = {forms[(2 * i + 1) % forms.size()]};
      check_family(family, method, forms, worst);
      ++trainings;
    }
  std::printf("families | %zu trainings: losses within %.1e, values within %.1e\n", trainings, worst.loss, worst.value);
}

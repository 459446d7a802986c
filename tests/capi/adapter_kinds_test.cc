// Adapters: the weights that get them, their initial values, their dropout; parameters chosen by name.
#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>

#include "tests/capi/c_api.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/small_training.h"
#include "tests/serialize/safetensors_writer.h"

using namespace capi_test;

namespace {

constexpr const char* kSmall = "llama:L=3,C=16,H=2,KV=2,F=24,V=256,T=32";

Model adapted(const Model& model, std::initializer_list<Setting> settings) {
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(model.get(), options(settings).get(), &made));
  return Model(made);
}

Error refusal(const Model& model, std::initializer_list<Setting> settings) {
  tsr_model* made = nullptr;
  Error error = take(tsr_model_add_adapters(model.get(), options(settings).get(), &made));
  CHECK(error.code != TSR_OK);
  return error;
}

// Names of the weights with adapters, without the common beginning and end.
std::string adapted_names(const Model& model) {
  std::string names;
  for (const auto& [name, value] : values_of(model))
    if (name.ends_with(".lora_b")) names += (names.empty() ? "" : " ") + name.substr(0, name.size() - 7);
  return names;
}

Trainer trainer_of(const Runtime& runtime, const Model& model, const Dataset& dataset,
                   std::initializer_list<Setting> settings) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(), options(settings).get(), &made));
  return Trainer(made);
}

double evaluated_alone(const Runtime& runtime, const Model& model, const Dataset& dataset) {
  return evaluated(trainer_of(runtime, model, dataset, {{"evaluate_only", 1}}));
}

void write_peft(const Model& model, const std::string& path) {
  tsr_work* made = nullptr;
  ok(tsr_export_begin_for_model(nullptr, model.get(), path.c_str(),
                                options({{"format", std::string("peft")}}).get(), &made));
  const Work work(made);
  step_through(work.get());
  ok(tsr_export_finish(work.get(), nullptr));
}

std::string read_text(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

TEST_CASE("weights with adapters are named as here or as in Hugging Face's files, by blocks, less some") {
  const Model base = described(kSmall);
  const std::string all = "block.0.down block.0.gate block.0.k block.0.o block.0.q block.0.up block.0.v";
  CHECK(adapted_names(adapted(base, {{"rank", 4}, {"layers", std::string("0")}})) == all);
  CHECK(adapted_names(adapted(
            base, {{"rank", 4}, {"on", std::string("all-linear")}, {"layers", std::string("0")}})) == all);
  CHECK(adapted_names(adapted(
            base, {{"on", std::string("q_proj,self_attn.v_proj")}, {"layers", std::string("0, 2-2")}})) ==
        "block.0.q block.0.v block.2.q block.2.v");
  CHECK(adapted_names(adapted(base, {{"rank", 4},
                                     {"on", std::string("all-linear")},
                                     {"layers", std::string("1")},
                                     {"exclude", std::string("mlp.up_proj,block.*.down,k_proj")}})) ==
        "block.1.gate block.1.o block.1.q block.1.v");
  CHECK(adapted_names(adapted(base, {{"rank", 4},
                                     {"on", std::string(R"(re:model\.layers\.[12]\..*\.(k|up)_proj)")},
                                     {"exclude", std::string("layers.2.mlp.up_proj")}})) ==
        "block.1.k block.1.up block.2.k");
  CHECK(adapted_names(adapted(base, {{"rank", 4}, {"on", std::string("lm_head,embed_tokens")}})) ==
        "output token_embedding");
  const Model ranks = adapted(base, {{"on", std::string("q_proj,down_proj")},
                                     {"rank", 4},
                                     {"alpha", 8.0},
                                     {"ranks", std::string("layers.1.self_attn.q_proj=2,down_proj=3")},
                                     {"alphas", std::string("block.0.q=5")},
                                     {"also", std::string("input_layernorm,lm_head")}});
  const std::string info = text([&](tsr_text** out) { return tsr_model_info(ranks.get(), out); });
  for (const char* const part :
       {R"("ranks":"block.0.down=3,block.1.q=2,block.1.down=3,block.2.down=3")",
        R"({"weight":"block.0.q","rank":4,"factor":1.25})",
        R"("also":"block.0.attention_norm,block.1.attention_norm,block.2.attention_norm,output")"})
    CHECK_MESSAGE(info.find(part) != std::string::npos, info);

  CHECK(refusal(base, {{"on", std::string("q_project")}}).message.find("q_proj") != std::string::npos);
  CHECK(refusal(base, {{"on", std::string("re:(")}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refusal(base, {{"layers", std::string("3")}}).message.find("no chosen weight is of block 3") !=
        std::string::npos);
  CHECK(refusal(base, {{"layers", std::string("2-1")}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refusal(base, {{"exclude", std::string("lm_head")}}).code == TSR_NOT_FOUND);
  CHECK(refusal(base, {{"exclude", std::string("all-linear")}}).message.find("no weight was chosen") !=
        std::string::npos);
}

TEST_CASE(
    "adapters that begin as the principal part of their weights change nothing at first, and go to PEFT as "
    "ordinary ones") {
  const Scratch scratch;
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model base = described(kSmall);
  const double first = evaluated_alone(runtime, base, dataset);
  const auto options_of_start = {Setting{"rank", 3}, Setting{"alpha", 6.0},
                                 Setting{"init", std::string("pissa")}};
  double reference = 0;
  for (const char* parallel : {"dp=1", "dp=2,zero=3", "tp=2", "pp=2,mb=2"}) {
    CAPTURE(parallel);
    const Model model = adapted(base, options_of_start);
    CHECK(evaluated_alone(runtime, model, dataset) == first);
    const Trainer trainer = trainer_of(runtime, model, dataset,
                                       {{"devices", std::string(parallel[3] == '1' ? "cpu:1" : "cpu:2")},
                                        {"parallel", std::string(parallel)},
                                        {"lr", 5e-3},
                                        {"batch", 4},
                                        {"warmup", 0}});
    double loss = 0;
    for (int step = 0; step < 8; ++step) loss = one_step(trainer);
    // Sums in f32 have another order, over eight steps.
    if (reference == 0)
      reference = loss;
    else
      CHECK(loss == doctest::Approx(reference).epsilon(1e-5));
    if (reference != loss) continue;

    ok(tsr_trainer_store(trainer.get(), model.get()));
    const double last = evaluated_alone(runtime, model, dataset);
    CHECK(last < first - 0.02);
    const auto values = values_of(model), before = values_of(adapted(base, options_of_start));
    CHECK(values.at("block.1.q.lora_a0") == before.at("block.1.q.lora_a"));
    CHECK(values.at("block.1.q.lora_b0") == before.at("block.1.q.lora_b"));
    CHECK(values.at("block.1.q.lora_a") != before.at("block.1.q.lora_a"));
    // alpha / rank * B0 A0 is a projection of W: the residual is orthogonal to it.
    const auto &a = before.at("block.1.q.lora_a0"), &b = before.at("block.1.q.lora_b0"),
               &w = before.at("block.1.q");
    double inner = 0, squares = 0;
    for (size_t n = 0; n < 16; ++n)
      for (size_t k = 0; k < 16; ++k) {
        double part = 0;
        for (size_t r = 0; r < 3; ++r)
          part += 2.0 * static_cast<double>(b[n * 3 + r]) * static_cast<double>(a[r * 16 + k]);
        inner += part * (static_cast<double>(w[n * 16 + k]) - part);
        squares += part * part;
      }
    CHECK(std::abs(inner) < 1e-6 * squares);  // A and B are f32
    CHECK(squares > 0);

    tsr_model* made = nullptr;
    ok(tsr_model_merge_adapters(model.get(), &made));
    const Model whole(made);
    CHECK(evaluated_alone(runtime, whole, dataset) == doctest::Approx(last).epsilon(1e-5));  // other sums
    write_peft(model, scratch / "adapter");
    const std::string config = read_text(scratch / "adapter/adapter_config.json");
    CHECK_MESSAGE(config.find(R"("r": 6)") != std::string::npos, config);
    CHECK(config.find(R"("lora_alpha": 12)") != std::string::npos);
    ok(tsr_model_load_adapters(base.get(), (scratch / "adapter").c_str(), nullptr, &made));
    CHECK(evaluated_alone(runtime, Model(made), dataset) == doctest::Approx(last).epsilon(1e-5));

    ok(tsr_trainer_save(trainer.get(), (scratch / "checkpoint").c_str()));
    const std::string info =
        text([&](tsr_text** out) { return tsr_checkpoint_info((scratch / "checkpoint").c_str(), out); });
    CHECK_MESSAGE(info.find(R"("init":"pissa")") != std::string::npos, info);
    const auto resumed = [&](const Model& other) {
      return take(tsr_trainer_resume(trainer_of(runtime, other, dataset, {{"batch", 4}}).get(),
                                     (scratch / "checkpoint").c_str()));
    };
    CHECK(resumed(adapted(base, options_of_start)).code == TSR_OK);
    CHECK(resumed(adapted(base, {{"rank", 3}, {"alpha", 6.0}})).code == TSR_INVALID_ARGUMENT);
  }
  CHECK(refusal(base, {{"init", std::string("pissa")}, {"dora", 1}}).code == TSR_UNSUPPORTED);
  CHECK(refusal(base, {{"init", std::string("pissa")}, {"on", std::string("embed_tokens")}}).code ==
        TSR_UNSUPPORTED);
  CHECK(refusal(base, {{"init", std::string("olora")}}).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE(
    "a folder whose adapter was taken out of the base (PiSSA) is W less its principal part and the adapter") {
  const Scratch scratch;
  const Model base = described("llama:L=1,C=8,H=2,KV=1,F=12,V=16,T=8,rope_half");
  tessera::testing::SafetensorsWriter tensors;
  std::vector<float> a(16), b(16);
  for (size_t i = 0; i < 16; ++i) a[i] = static_cast<float>(i % 5) / 4, b[i] = static_cast<float>(i % 3) / 8;
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj";
  tensors.f32(name + ".lora_A.weight", "[2, 8]", a);
  tensors.f32(name + ".lora_B.weight", "[8, 2]", b);
  std::ofstream(scratch / "adapter_model.safetensors", std::ios::binary) << tensors.finish();
  const auto load = [&](const char* init, Model* out) {
    std::ofstream(scratch / "adapter_config.json")
        << R"({"peft_type":"LORA","r":2,"lora_alpha":3,"target_modules":["q_proj"],"init_lora_weights":")"
        << init << "\"}";
    tsr_model* made = nullptr;
    Error error = take(tsr_model_load_adapters(base.get(), scratch.path.c_str(), nullptr, &made));
    if (out) out->reset(made);
    return error;
  };
  Model model;
  REQUIRE(load("pissa", &model).code == TSR_OK);
  CHECK(load("pissa_niter_4", nullptr).code == TSR_UNSUPPORTED);
  const auto start = values_of(adapted(
      base, {{"rank", 2}, {"alpha", 3.0}, {"on", std::string("q_proj")}, {"init", std::string("pissa")}}));
  tsr_model* made = nullptr;
  ok(tsr_model_merge_adapters(model.get(), &made));
  const auto merged = values_of(Model(made)), before = values_of(base);
  for (size_t n = 0; n < 8; ++n)
    for (size_t k = 0; k < 8; ++k) {
      auto wanted = static_cast<double>(before.at("block.0.q")[n * 8 + k]);
      for (size_t r = 0; r < 2; ++r)
        wanted += 1.5 * (static_cast<double>(b[n * 2 + r]) * static_cast<double>(a[r * 8 + k]) -
                         static_cast<double>(start.at("block.0.q.lora_b0")[n * 2 + r]) *
                             static_cast<double>(start.at("block.0.q.lora_a0")[r * 8 + k]));
      CHECK(static_cast<double>(merged.at("block.0.q")[n * 8 + k]) == doctest::Approx(wanted).epsilon(1e-5));
    }
}

TEST_CASE("dropout of adapters is of training alone, and goes to PEFT and back") {
  const Scratch scratch;
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model base = described(kSmall);
  const auto losses = [&](double dropout, const char* devices, const char* parallel) {
    const Model model = adapted(base, {{"rank", 4}, {"alpha", 32.0}, {"dropout", dropout}});
    const Trainer trainer = trainer_of(runtime, model, dataset,
                                       {{"devices", std::string(devices)},
                                        {"parallel", std::string(parallel)},
                                        {"lr", 1e-2},
                                        {"batch", 4},
                                        {"warmup", 0}});
    std::vector<double> all;
    for (int step = 0; step < 5; ++step) all.push_back(one_step(trainer));
    return all;
  };
  const std::vector<double> some = losses(0.5, "cpu:1", "dp=1"), none = losses(0, "cpu:1", "dp=1");
  CHECK(some[0] == none[0]);  // B is zero
  CHECK(some[4] != none[4]);
  for (const char* parallel : {"dp=2", "tp=2"}) {  // the same elements, however they are split
    const std::vector<double> split = losses(0.5, "cpu:2", parallel);
    for (size_t i = 0; i < 5; ++i) CHECK(split[i] == doctest::Approx(some[i]).epsilon(1e-5));
  }
  const Model model = adapted(base, {{"rank", 4}, {"dropout", 0.25}, {"on", std::string("q_proj")}});
  CHECK(evaluated_alone(runtime, model, dataset) == evaluated_alone(runtime, base, dataset));
  write_peft(model, scratch / "adapter");
  const std::string config = read_text(scratch / "adapter/adapter_config.json");
  CHECK_MESSAGE(config.find(R"("lora_dropout": 0.25)") != std::string::npos, config);
  tsr_model* made = nullptr;
  ok(tsr_model_load_adapters(base.get(), (scratch / "adapter").c_str(), nullptr, &made));
  const Model again(made);
  const std::string info = text([&](tsr_text** out) { return tsr_model_info(again.get(), out); });
  CHECK_MESSAGE(info.find(R"("dropout":"0.25")") != std::string::npos, info);
  ok(tsr_model_merge_adapters(again.get(), &made));
  const auto graph = [](const Model& it) {
    tsr_graph* found = nullptr;
    ok(tsr_model_graph(it.get(), &found));
    const Graph held(found);
    return text([&](tsr_text** out) { return tsr_graph_print(held.get(), out); });
  };
  CHECK(graph(Model(made)) == graph(base));  // its seed has gone, too
  CHECK(refusal(base, {{"dropout", 0.1}, {"dora", 1}}).code == TSR_UNSUPPORTED);
  CHECK(refusal(base, {{"dropout", 1.0}}).code == TSR_INVALID_ARGUMENT);
}

TEST_CASE("parameters that are chosen train, and no others") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model model = described(kSmall);
  const auto before = values_of(model);
  const Trainer trainer = trainer_of(runtime, model, dataset,
                                     {{"trained", std::string("block.2.*,final_norm")},
                                      {"frozen", std::string("block.2.q")},
                                      {"batch", 2},
                                      {"warmup", 0}});
  one_step(trainer);
  ok(tsr_trainer_store(trainer.get(), model.get()));
  for (const auto& [name, value] : values_of(model)) {
    CAPTURE(name);
    const bool trains = (name.starts_with("block.2.") || name == "final_norm") && name != "block.2.q";
    CHECK((value != before.at(name)) == trains);
  }
  tsr_trainer* made = nullptr;
  const Error error = take(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                                           options({{"trained", std::string("block.9.*")}}).get(), &made));
  CHECK(error.code == TSR_NOT_FOUND);
  CHECK_MESSAGE(error.message.find("trained: no parameter matches 'block.9.*'") != std::string::npos,
                error.message);
}

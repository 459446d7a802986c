// Low-rank adapters through the C API: the base keeps its bits, the loss falls, merging changes no output,
// and a plan with them differs from one of full training and says why.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

#include "tests/capi/c_api.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/small_training.h"
#include "tests/number_after.h"

using namespace capi_test;

namespace {

Model adapted(const Model& model, std::initializer_list<Setting> settings) {
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(model.get(), options(settings).get(), &made));
  return Model(made);
}

Model merged(const Model& model) {
  tsr_model* made = nullptr;
  ok(tsr_model_merge_adapters(model.get(), &made));
  return Model(made);
}

double evaluated(const Runtime& runtime, const Model& model, const Dataset& dataset) {
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(), options({{"evaluate_only", 1}}).get(),
                     &made));
  return capi_test::evaluated(Trainer(made));
}

constexpr const char* kModel = "gpt2:L=2,C=32,H=4,V=256,T=32";

}  // namespace

TEST_CASE(
    "training adapters leaves the base as it is to the bit, lowers the loss, and merges to the same "
    "outputs") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = repeated_text("the tiles of one mosaic lie side by side; ", 120, 16, 0.2);
  const Model base = described(kModel);
  const auto before = values_of(base);
  const double first = evaluated(runtime, base, dataset);
  for (const char* parallel : {"dp=1", "dp=2,zero=3", "tp=2,sp", "pp=2,mb=2"}) {
    CAPTURE(parallel);
    const Model model = adapted(base, {{"rank", 4}, {"alpha", 8.0}});
    // Adapters begin without effect.
    CHECK(evaluated(runtime, model, dataset) == first);
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                       options({{"devices", std::string(parallel == std::string("dp=1") ? "cpu:1" : "cpu:2")},
                                {"parallel", std::string(parallel)},
                                {"lr", 1e-2},
                                {"warmup", 0},
                                {"steps", 30},
                                {"batch", 4}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    for (int step = 0; step < 30; ++step) ok(tsr_trainer_step(trainer.get(), nullptr));
    ok(tsr_trainer_store(trainer.get(), model.get()));
    const double last = evaluated(runtime, model, dataset);
    CHECK(last < first - 0.3);
    const auto after = values_of(model);
    for (const auto& [name, value] : before) {
      CAPTURE(name);
      CHECK(std::memcmp(value.data(), after.at(name).data(), value.size() * sizeof(float)) == 0);
    }
    CHECK(after.size() == before.size() + 2 * 2 * 6);
    const auto& b = after.at("block.1.fc.lora_b");
    CHECK(std::ranges::any_of(b, [](float x) { return x != 0; }));

    const Model whole = merged(model);
    const auto taken_in = values_of(whole);
    CHECK(taken_in.size() == before.size());
    CHECK(taken_in.at("block.0.q.weight") != before.at("block.0.q.weight"));
    CHECK(taken_in.at("token_embedding") == before.at("token_embedding"));
    // The same sums in another order, in f32.
    CHECK(evaluated(runtime, whole, dataset) == doctest::Approx(last).epsilon(1e-5));
  }
}

TEST_CASE(
    "magnitudes train alike however the model is split, in halves of bits too, and merge to the same "
    "outputs") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = repeated_text("the tiles of one mosaic lie side by side; ", 120, 16, 0.2);
  const Model base = described(kModel);
  const double first = evaluated(runtime, base, dataset);
  double reference = 0;
  for (const auto& [parallel, precision] :
       {std::pair("dp=1", "f32"), std::pair("dp=2,zero=3", "f32"), std::pair("tp=2,sp", "f32"),
        std::pair("pp=2,mb=2", "f32"), std::pair("tp=2", "bf16")}) {
    CAPTURE(parallel);
    const Model model = adapted(base, {{"rank", 4}, {"alpha", 8.0}, {"dora", 1}});
    CHECK(evaluated(runtime, model, dataset) == doctest::Approx(first).epsilon(1e-6));
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                       options({{"devices", std::string(parallel == std::string("dp=1") ? "cpu:1" : "cpu:2")},
                                {"parallel", std::string(parallel)},
                                {"precision", std::string(precision)},
                                {"lr", 1e-2},
                                {"warmup", 0},
                                {"steps", 20},
                                {"batch", 4}})
                           .get(),
                       &made));
    const Trainer trainer(made);
    for (int step = 0; step < 20; ++step) ok(tsr_trainer_step(trainer.get(), nullptr));
    ok(tsr_trainer_store(trainer.get(), model.get()));
    const double last = evaluated(runtime, model, dataset);
    CHECK(last < first - 0.2);
    if (reference == 0) reference = last;
    CHECK(last == doctest::Approx(reference).epsilon(precision == std::string("f32") ? 1e-3 : 2e-2));
    CHECK(values_of(model).at("block.0.q.lora_magnitude") !=
          values_of(adapted(base, {{"rank", 4}, {"dora", 1}})).at("block.0.q.lora_magnitude"));
    CHECK(evaluated(runtime, merged(model), dataset) == doctest::Approx(last).epsilon(1e-5));
  }
}

TEST_CASE("an adapted model is saved, loaded, and adapters stand only where they were asked for") {
  const Scratch scratch;
  const Model base = described(kModel);
  const Model model = adapted(base, {{"rank", 2}, {"on", "block.*.q.weight,block.1.v.weight"}});
  const std::string path = scratch / "adapted.tsr";
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  tsr_model* loaded = nullptr;
  ok(tsr_model_load(path.c_str(), &loaded));
  const Model again(loaded);
  const auto all = values_of(again);
  CHECK(all == values_of(model));
  CHECK(std::ranges::count_if(all, [](const auto& it) { return it.first.ends_with(".lora_a"); }) == 3);
  CHECK(all.contains("block.1.v.lora_b"));
  CHECK(values_of(merged(again)) == values_of(base));  // still zero

  tsr_model* made = nullptr;
  const Error unknown = take(tsr_model_add_adapters(base.get(), options({{"on", "block.*.w"}}).get(), &made));
  CHECK(unknown.code == TSR_NOT_FOUND);
  CHECK(unknown.message.find("no parameter matches 'block.*.w'") != std::string::npos);
  CHECK(take(tsr_model_add_adapters(model.get(), nullptr, &made)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_model_merge_adapters(base.get(), &made)).code == TSR_FAILED_PRECONDITION);
}

TEST_CASE("a merged weight keeps the 16 bits that it had, and is f32 in place of blocks") {
  const Scratch scratch;
  for (const auto& [type, wanted] : {std::pair("bf16", TSR_BF16), {"f16", TSR_F16}, {"q8_0", TSR_F32}}) {
    CAPTURE(type);
    const std::string path = scratch / "base.tsr";
    ok(tsr_model_quantize(nullptr, described(kModel).get(), path.c_str(),
                          options({{"type", std::string(type)}, {"pure", 1}}).get(), nullptr));
    tsr_model *loaded = nullptr, *made = nullptr;
    ok(tsr_model_load(path.c_str(), &loaded));
    const Model base(loaded);
    ok(tsr_model_add_adapters(loaded, options({{"rank", 2}, {"on", std::string("block.0.*")}}).get(), &made));
    const Model model(made);
    tsr_tensor* value = nullptr;
    ok(tsr_model_read(made, "block.0.q.lora_b", &value));
    const Tensor b(value);
    const std::vector<int64_t> dims(tsr_tensor_dims(value), tsr_tensor_dims(value) + tsr_tensor_rank(value));
    ok(tsr_model_write(made, "block.0.q.lora_b",
                       tensor_f32(dims, std::vector<float>(static_cast<size_t>(dims[0] * dims[1]), 0.3f)).get()));
    const Model whole = merged(model);
    tsr_tensor *changed = nullptr, *before = nullptr;
    ok(tsr_model_read(whole.get(), "block.0.q.weight", &changed));
    ok(tsr_model_read(loaded, "block.0.q.weight", &before));
    const Tensor owner(changed), other(before);
    CHECK(tsr_tensor_dtype(changed) == wanted);
    if (wanted == TSR_F32) continue;
    REQUIRE(tsr_tensor_bytes(changed) == tsr_tensor_bytes(before));
    CHECK(std::memcmp(tsr_tensor_data(changed), tsr_tensor_data(before), tsr_tensor_bytes(before)) != 0);
  }
}

TEST_CASE("routers of experts get adapters only where they are named") {
  for (const char* description :
       {"moe:L=1,C=32,H=2,F=32,E=2,K=1,V=64,T=16", "qwen2moe:L=1,C=32,H=2,F=32,FS=32,E=4,K=2,V=64,T=16"}) {
    CAPTURE(description);
    const Model base = described(description);
    const auto routers = [&](const Model& model) {
      return std::ranges::count_if(values_of(model), [](const auto& it) {
        return it.first.find("router.lora_a") != it.first.npos;
      });
    };
    CHECK(routers(adapted(base, {{"rank", 8}})) == 0);  // more than a router has rows
    CHECK(routers(adapted(base, {{"rank", 1}, {"on", std::string("*.router,block.0.q")}})) >= 1);
  }
}

TEST_CASE("adapters are planned otherwise than full training under a limit, and the explanation says why") {
  const Runtime runtime = capi_test::runtime();
  const Model base = described("gpt2:L=4,C=128,H=4,V=512,T=128");
  const Model model = adapted(base, {{"rank", 4}});
  const auto explained = [&](const Model& of, std::initializer_list<Setting> more) {
    Options given = options(more);
    for (const auto& [key, value] : {std::pair("devices", "cpu:4")})
      ok(tsr_options_set_str(given.get(), key, value));
    ok(tsr_options_set_i64(given.get(), "batch", 8));
    ok(tsr_options_set_i64(given.get(), "seq", 128));
    tsr_plan* made = nullptr;
    ok(tsr_plan_new(runtime.get(), of.get(), given.get(), &made));
    const Plan plan(made);
    return text([&](tsr_text** out) { return tsr_plan_explain(plan.get(), out); });
  };
  const auto strategy_of = [](const std::string& json) {
    const size_t at = json.find("\"strategy\":\"") + 12;
    return json.substr(at, json.find('"', at) - at);
  };
  // Full training cuts the batch finer than adapters need to.
  const std::string full = explained(base, {{"memory_limit", "10MiB"}});
  const std::string lora = explained(model, {{"memory_limit", "10MiB"}});
  MESSAGE(strategy_of(full), " becomes ", strategy_of(lora));
  CHECK(strategy_of(full) != strategy_of(lora));
  for (const char* sentence :
       {"parameters are trained; the frozen ones have no gradient", "Gradients and optimizer state take",
        "Products for gradients of frozen weights are left out", "Trained in full the best plan is '"}) {
    CAPTURE(sentence);
    CHECK(lora.find(sentence) != std::string::npos);
    CHECK(full.find(sentence) == std::string::npos);
  }
  CHECK(lora.find("Trained in full the best plan is '" + strategy_of(full) + "'") != std::string::npos);
  // "This very plan" is the plan, with the values that it computes again.
  const auto between = [&](std::string_view from, std::string_view to) {
    const size_t begin = lora.find(from) + from.size();
    return lora.substr(begin, lora.find(to, begin) - begin);
  };
  REQUIRE(strategy_of(lora).find("recompute=some") != std::string::npos);
  CHECK(between("are left out: ", " a step") == between("here '" + strategy_of(lora) + "': ", " and "));
  // Parameters frozen by name are reported, too.
  const std::string frozen = explained(base, {{"memory_limit", "10MiB"}, {"frozen", "block.*"}});
  CHECK(frozen.find("Trained in full the best plan is '") != std::string::npos);
}

TEST_CASE("the report tells how far training and evaluation reached into arenas, which is all of them") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = repeated_text("the tiles of one mosaic lie side by side; ", 60, 16, 0.2);
  // Few parameters train, and activations are recomputed: an evaluation, whose loss is made in phases, needs about as
    // much.
  const Model model = adapted(described("llama:L=1,C=8,H=1,KV=1,F=8,V=256,T=16"), {{"rank", 2}});
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                     options({{"devices", std::string("cpu:2")},
                              {"parallel", std::string("dp=2,zero=3,mb=2,recompute=full")},
                              {"fused_loss", std::string("on")},
                              {"steps", 2},
                              {"batch", 12}})
                         .get(),
                     &made));
  const Trainer trainer(made);
  one_step(trainer);
  one_step(trainer);
  const auto arena = [&](const char* key) {
    const std::string report = text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
    return tessera::test::number_after(report.substr(report.find("\"arena_bytes\"")), key);
  };
  const int64_t trained = arena("\"measured\":");
  evaluated(trainer);
  CHECK(trained <= arena("\"predicted\":"));
  CHECK(arena("\"measured\":") == arena("\"predicted\":"));
}

TEST_CASE("a checkpoint tells the adapters of its model, and is resumed by a model that has the same") {
  const Scratch scratch;
  const std::string folder = scratch / "checkpoint";
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model base = described(kModel);
  const auto trainer_of = [&](const Model& model) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), model.get(), dataset.get(), options({{"batch", 2}}).get(), &made));
    return Trainer(made);
  };
  const auto resumed = [&](const Trainer& trainer) {
    return take(tsr_trainer_resume(trainer.get(), folder.c_str()));
  };
  {
    const Trainer trainer =
        trainer_of(adapted(base, {{"rank", 3}, {"alpha", 6.0}, {"on", "block.*.q.weight"}}));
    one_step(trainer);
    ok(tsr_trainer_save(trainer.get(), folder.c_str()));
  }
  const std::string info = text([&](tsr_text** out) { return tsr_checkpoint_info(folder.c_str(), out); });
  CHECK(info.find(R"("step":1,)") != std::string::npos);
  CHECK(info.find(R"("adapters":{"rank":3,"alpha":6.0,"on":"block.0.q.weight,block.1.q.weight"})") !=
        std::string::npos);

  const Error plain = resumed(trainer_of(base));
  CHECK(plain.code == TSR_INVALID_ARGUMENT);
  CHECK_MESSAGE(plain.message.find("rank 3 and alpha 6") != std::string::npos, plain.message);
  CHECK(plain.message.find("--lora 3") != std::string::npos);
  const Error other = resumed(trainer_of(adapted(base, {{"rank", 3}, {"on", "block.*.q.weight"}})));
  CHECK_MESSAGE(
      other.message.find("rank 3 and alpha 6, this model's rank 3 and alpha 3") != std::string::npos,
      other.message);
  const Trainer same =
      trainer_of(adapted(base, {{"rank", 3}, {"alpha", 6.0}, {"on", "block.0.q.weight,block.1.q.weight"}}));
  CHECK(resumed(same).code == TSR_OK);

  ok(tsr_trainer_save(trainer_of(base).get(), folder.c_str()));
  const Error without = resumed(same);
  CHECK_MESSAGE(
      without.message.find("without low-rank adapters, this model has some of rank 3") != std::string::npos,
      without.message);
  tsr_text* none = nullptr;
  CHECK(take(tsr_checkpoint_info((scratch / "none").c_str(), &none)).code == TSR_NOT_FOUND);
}

TEST_CASE("evaluating alone may store weights as a generator does") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model model = described("llama:L=2,C=64,H=4,F=96,V=256,T=64");
  const auto loss = [&](const char* weights, const char* devices) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(
        runtime.get(), model.get(), dataset.get(),
        options({{"weights", std::string(weights)}, {"devices", std::string(devices)}, {"evaluate_only", 1}})
            .get(),
        &made));
    return capi_test::evaluated(Trainer(made));
  };
  const double whole = loss("model", "cpu:1");
  for (const char* weights : {"bf16", "q8_0", "q4_0"}) {
    CAPTURE(weights);
    const double stored = loss(weights, "cpu:1");
    CHECK(stored != whole);
    CHECK(stored == doctest::Approx(whole).epsilon(5e-3));
    CHECK(loss(weights, "cpu:2") == doctest::Approx(stored).epsilon(1e-4));
  }
  tsr_trainer* made = nullptr;
  const Error refused = take(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                                             options({{"weights", std::string("q8_0")}}).get(), &made));
  CHECK(refused.message.find("wanted one of model, bf16") != std::string::npos);
}

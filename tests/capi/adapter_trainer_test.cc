// Adapters that train side by side: the bits of each alone, an ordinary training of the same adapter, its checkpoints, turns,
// and what fails for one alone.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/capi/largest_difference.h"
#include "tests/capi/parameter_values.h"
#include "tests/capi/step_parts.h"
#include "text/json.h"

namespace capi_test::step_parts {

namespace {

using AdapterTrainer = Handle<tsr_adapter_trainer, tsr_adapter_trainer_free>;
using tessera::Json;

struct Result {
  Json json;
  std::vector<float> logprobs;
  bool operator==(const Result& other) const {
    return json.value("loss", Json()) == other.json.value("loss", Json()) &&
           json.value("grad_norm", Json()) == other.json.value("grad_norm", Json()) && logprobs == other.logprobs;
  }
};

// A tenant: the options of its adapter and of its steps, and rows of its own.
struct Tenant {
  std::vector<Setting> adapter, step;
  const char* loss;
  int64_t rows;
  uint32_t seed;
};

const std::vector<Tenant> kTenants = {
    {{{"rank", int64_t{4}}, {"alpha", 8.0}, {"seed", int64_t{1}}}, {{"lr", 0.01}}, "cross_entropy", 5, 1},
    {{{"rank", int64_t{2}}, {"on", std::string("q_proj,down_proj")}, {"seed", int64_t{2}}},
     {{"lr", 0.02}, {"beta1", 0.5}, {"clip_norm", 0.01}}, "ppo", 2, 2},
    {{{"rank", int64_t{3}}, {"alpha", 3.0}, {"rslora", int64_t{1}}, {"seed", int64_t{3}}},
     {{"lr", 0.005}, {"weight_decay", 0.3}}, "cross_entropy", 7, 3},
};

class Adapters {
 public:
  explicit Adapters(const Layout& layout = {}, std::vector<Setting> more = {}) {
    std::vector<Setting> words = {{"devices", layout.devices},        {"parallel", layout.parallel},
                                  {"batch", int64_t{4}},              {"seq", kSeq},
                                  {"warmup", int64_t{0}},             {"adapters", int64_t{3}},
                                  {"adapter_rank", int64_t{4}},       {"losses", std::string("cross_entropy,ppo,gradient")}};
    words.insert(words.end(), more.begin(), more.end());
    model_ = described(layout.model);
    tsr_adapter_trainer* made = nullptr;
    ok(tsr_adapter_trainer_new(runtime_.get(), model_.get(), options(words).get(), &made));
    trainer.reset(made);
  }
  int64_t add(const std::vector<Setting>& settings) {
    int64_t adapter = -1;
    ok(tsr_adapter_trainer_add(trainer.get(), options(settings).get(), &adapter));
    return adapter;
  }
  int64_t queue(int64_t adapter, const Rows& rows, const char* loss, double scale = 1) {
    const tsr_batch batch = rows.batch();
    int64_t pass = -1;
    ok(tsr_adapter_trainer_forward_backward(trainer.get(), adapter, &batch, loss, options({{"scale", scale}}).get(), &pass));
    return pass;
  }
  int64_t queue_forward(int64_t adapter, const Rows& rows) {
    const tsr_batch batch = rows.batch();
    int64_t pass = -1;
    ok(tsr_adapter_trainer_forward(trainer.get(), adapter, &batch, &pass));
    return pass;
  }
  int64_t update(int64_t adapter, const std::vector<Setting>& settings = {}) {
    int64_t pass = -1;
    ok(tsr_adapter_trainer_update(trainer.get(), adapter, options(settings).get(), &pass));
    return pass;
  }
  // The results of all passes that wait, by number.
  std::map<int64_t, Result> finish() {
    std::map<int64_t, Result> results;
    for (;;) {
      const std::string found = text([&](tsr_text** out) { return tsr_adapter_trainer_next(trainer.get(), out); });
      if (found.empty()) return results;
      Result result{Json::parse(found), {}};
      size_t count = 0;
      ok(tsr_adapter_trainer_logprobs(trainer.get(), nullptr, 0, &count));
      result.logprobs.resize(count);
      ok(tsr_adapter_trainer_logprobs(trainer.get(), result.logprobs.data(), count, &count));
      results[result.json["pass"].get<int64_t>()] = std::move(result);
    }
  }
  Model model_of(int64_t adapter) {
    tsr_model* model = nullptr;
    ok(tsr_adapter_trainer_model(trainer.get(), adapter, &model));
    return Model(model);
  }
  Json report() {
    return Json::parse(text([&](tsr_text** out) { return tsr_adapter_trainer_report(trainer.get(), out); }));
  }

  AdapterTrainer trainer;

 private:
  Runtime runtime_ = runtime();
  Model model_;
};

// The results of a tenant's passes, and its factors after them.
struct Trained {
  std::vector<Result> results;
  Values factors;
};

Values factors_of(const Model& model) {
  Values all = values_of(model);
  std::erase_if(all, [](const auto& it) { return it.first.find(".lora_") == std::string::npos; });
  REQUIRE(!all.empty());
  return all;
}

// The tenants with dropout: the first and the last.
std::vector<Tenant> with_dropout() {
  std::vector<Tenant> tenants = kTenants;
  tenants.front().adapter.emplace_back("dropout", 0.3);
  tenants.back().adapter.emplace_back("dropout", 0.6);
  return tenants;
}

const std::vector<Setting> kRoomForDropout = {{"adapter_dropout", int64_t{1}}};

// Three steps of some tenants, together.
std::vector<Trained> train(Adapters& adapters, const std::vector<Tenant>& tenants) {
  std::vector<int64_t> numbers;
  for (const Tenant& tenant : tenants) numbers.push_back(adapters.add(tenant.adapter));
  std::vector<Trained> trained(tenants.size());
  for (int step = 0; step < 3; ++step) {
    std::vector<std::pair<size_t, int64_t>> passes;
    for (size_t i = 0; i < tenants.size(); ++i) {
      const Rows rows(tenants[i].rows, tenants[i].seed + static_cast<uint32_t>(step));
      passes.emplace_back(i, adapters.queue(numbers[i], rows, tenants[i].loss, scale_of(rows)));
      passes.emplace_back(i, adapters.update(numbers[i], tenants[i].step));
    }
    std::map<int64_t, Result> results = adapters.finish();
    REQUIRE(results.size() >= passes.size());
    for (const auto& [tenant, pass] : passes) {
      INFO(results[pass].json.dump());
      CHECK(!results[pass].json.contains("error"));
      trained[tenant].results.push_back(std::move(results[pass]));
    }
  }
  for (size_t i = 0; i < tenants.size(); ++i) trained[i].factors = factors_of(adapters.model_of(numbers[i]));
  return trained;
}

}  // namespace

TEST_CASE("adapters side by side have the bits of each alone, on devices that do not split the batch") {
  for (const Layout& layout : {Layout{}, Layout{"cpu:2", "tp=2"}, Layout{"cpu:2", "pp=2,mb=4"}}) {
    INFO(layout.parallel);
    Adapters all(layout);
    const std::vector<Trained> together = train(all, kTenants);
    for (size_t i = 0; i < kTenants.size(); ++i) {
      INFO(i);
      Adapters one(layout);
      const Trained alone = train(one, {kTenants[i]})[0];
      CHECK(alone.results == together[i].results);
      CHECK(alone.factors == together[i].factors);
    }
  }
}

TEST_CASE("adapters side by side have dropout of their own, with the bits of each alone") {
  const char* const dropping = "gpt2:L=2,C=32,H=4,V=64,T=16,dropout=0.2";  // the model, too
  for (const Layout& layout : {Layout{}, Layout{"cpu:2", "tp=2"}, Layout{"cpu:2", "pp=2,mb=4"}, Layout{"cpu:1", "", dropping}}) {
    INFO(layout.parallel, " ", layout.model);
    std::vector<Tenant> tenants = with_dropout();
    if (layout.model == dropping) tenants[1].adapter[1] = {"on", std::string("c_proj")};  // a module of its family
    Adapters all(layout, kRoomForDropout);
    const std::vector<Trained> together = train(all, tenants);
    for (const size_t i : {size_t{0}, size_t{1}}) {
      Adapters one(layout, kRoomForDropout);
      const Trained alone = train(one, {tenants[i]})[0];
      CHECK(alone.results == together[i].results);
      CHECK(alone.factors == together[i].factors);
    }
  }
}

TEST_CASE("dropout of an adapter in a slot is of its passes with gradients, each with its own, and of no other adapter") {
  Adapters dropping({}, kRoomForDropout), sure;
  const std::vector<Tenant> tenants = with_dropout();
  const std::vector<Trained> with = train(dropping, tenants), without = train(sure, kTenants);
  CHECK(with[0].factors != without[0].factors);
  CHECK(with[1].factors == without[1].factors);  // its own dropout is 0
  const int64_t adapter = 2;                     // number and seed of the last, whose B is not 0 any more
  const Rows rows(3, 5);
  const auto forward = [&] { return dropping.queue_forward(adapter, rows); };
  const auto accumulate = [&] { return dropping.queue(adapter, rows, "cross_entropy"); };
  const std::vector<int64_t> passes = {forward(), accumulate(), forward(), accumulate()};
  std::map<int64_t, Result> found = dropping.finish();
  CHECK(found[passes[0]].logprobs == found[passes[2]].logprobs);
  CHECK(found[passes[0]].logprobs != found[passes[1]].logprobs);
  CHECK(found[passes[1]].logprobs != found[passes[3]].logprobs);
}

TEST_CASE("adapters side by side are near each alone where the batch is split") {
  Adapters one;
  const std::vector<Trained> wanted = train(one, kTenants);
  for (const Layout& layout : {Layout{"cpu:2", "dp=2,mb=2"}, Layout{"cpu:2", "dp=2,zero=2"}}) {
    INFO(layout.parallel);
    Adapters all(layout);
    const std::vector<Trained> found = train(all, kTenants);
    for (size_t i = 0; i < kTenants.size(); ++i)
      for (const auto& [name, values] : wanted[i].factors)
        CHECK(largest_difference(found[i].factors.at(name), values) < 2e-5);  // AdamW's quotients of small gradients
  }
}

TEST_CASE("an adapter in a slot trains as the model with it alone does, and either goes on from the other's checkpoint") {
  const Scratch scratch;
  const std::string of_slot = scratch / "slot", of_model = scratch / "model";
  for (const char* description : {kModel, "gpt2:L=2,C=32,H=4,V=64,T=16,dropout=0.1"}) {
    INFO(description);
    std::vector<Setting> adapter = {{"rank", int64_t{4}}, {"alpha", 8.0}};
    if (description != kModel) adapter.emplace_back("dropout", 0.25);
    const Rows rows(4);
    Adapters adapters(Layout{"cpu:1", "", description}, {{"adapter_rank", int64_t{6}}, {"adapter_dropout", int64_t{1}}});
    std::vector<Setting> seeded = adapter;
    seeded.emplace_back("seed", int64_t{7});
    const int64_t number = adapters.add(seeded);
    tsr_model* made = nullptr;
    ok(tsr_model_add_adapters(described(description).get(), options(adapter).get(), &made));
    const Model model(made);
    const Runtime runtime = capi_test::runtime();
    tsr_trainer* alone = nullptr;
    ok(tsr_trainer_new(runtime.get(), model.get(), nullptr,
                       options({{"devices", std::string("cpu:1")}, {"batch", int64_t{6}}, {"seq", kSeq}, {"warmup", int64_t{0}},
                                {"seed", int64_t{7}}, {"losses", std::string("cross_entropy")}, {"lr", 0.01}}).get(), &alone));
    const Trainer trainer(alone);
    const auto compare = [&](int64_t number) {
      ok(tsr_trainer_store(trainer.get(), model.get()));
      const Values wanted = factors_of(model), found = factors_of(adapters.model_of(number));
      REQUIRE(found.size() == wanted.size());
      // Sums of tokens in another order, of which AdamW's first steps are quotients.
      for (const auto& [name, values] : wanted) CHECK(largest_difference(found.at(name), values) < 1e-4);
    };
    const auto step = [&](std::initializer_list<int64_t> numbers, std::initializer_list<Rows> parts) {
      for (const int64_t it : numbers) {
        for (const Rows& part : parts) adapters.queue(it, part, "cross_entropy", scale_of(part));
        adapters.update(it, {{"lr", 0.01}});
      }
      for (const auto& [pass, result] : adapters.finish()) CHECK(!result.json.contains("error"));
      for (const Rows& part : parts) {
        const tsr_batch batch = part.batch();
        ok(tsr_trainer_forward_backward(trainer.get(), &batch, "cross_entropy", options({{"scale", scale_of(part)}}).get(), nullptr,
                                        nullptr, 0, nullptr));
      }
      ok(tsr_trainer_optimizer_step(trainer.get(), options({{"lr", 0.01}}).get(), nullptr));
    };
    step({number}, {rows});
    step({number}, {rows, Rows(5, 8)});
    compare(number);
    ok(tsr_adapter_trainer_save(adapters.trainer.get(), number, of_slot.c_str()));
    ok(tsr_trainer_save(trainer.get(), of_model.c_str()));
    int64_t again = -1, other = -1;
    ok(tsr_adapter_trainer_load(adapters.trainer.get(), of_slot.c_str(), nullptr, &again));
    ok(tsr_adapter_trainer_load(adapters.trainer.get(), of_model.c_str(), nullptr, &other));
    CHECK(factors_of(adapters.model_of(again)) == factors_of(adapters.model_of(number)));
    CHECK(factors_of(adapters.model_of(other)) == factors_of(model));
    ok(tsr_trainer_resume(trainer.get(), of_slot.c_str()));  // of batches of another size
    // The same step from the same state: the loaded adapter has the bits of the one that was saved.
    step({number, again}, {Rows(3, 11)});
    CHECK(factors_of(adapters.model_of(again)) == factors_of(adapters.model_of(number)));
    compare(again);
    ok(tsr_adapter_trainer_drop(adapters.trainer.get(), other));
    ok(tsr_adapter_trainer_drop(adapters.trainer.get(), again));
  }
}

TEST_CASE("an adapter's values alone are loaded, of any optimizer, with a new optimizer state") {
  const Scratch scratch;
  const std::string folder = scratch / "state", bare = scratch / "bare";
  const std::vector<Setting> alone = {{"optimizer", int64_t{0}}};
  const Rows rows(2);
  Adapters adapters;
  const int64_t first = adapters.add(kTenants[0].adapter);
  const auto step = [&](int64_t adapter) {
    adapters.queue(adapter, rows, "cross_entropy", scale_of(rows));
    const int64_t update = adapters.update(adapter, {{"lr", 0.01}});
    return adapters.finish()[update];
  };
  step(first), step(first);
  ok(tsr_adapter_trainer_save(adapters.trainer.get(), first, folder.c_str()));
  int64_t fresh = -1, whole = -1;
  ok(tsr_adapter_trainer_load(adapters.trainer.get(), folder.c_str(), options(alone).get(), &fresh));
  ok(tsr_adapter_trainer_load(adapters.trainer.get(), folder.c_str(), nullptr, &whole));
  const Values before = factors_of(adapters.model_of(first));
  CHECK(factors_of(adapters.model_of(fresh)) == before);
  CHECK(step(whole).json["step"] == 3);
  CHECK(step(fresh).json["step"] == 1);
  const Values moved = factors_of(adapters.model_of(fresh));
  CHECK(moved != factors_of(adapters.model_of(whole)));  // moments are new
  // AdamW's first step is the rate, whatever the gradient.
  CHECK(largest_difference(moved.at("block.0.q.lora_b"), before.at("block.0.q.lora_b")) == doctest::Approx(0.01).epsilon(0.1));
  const auto refused = [](tsr_status* status, const char* words) {
    const Error error = take(status);
    CAPTURE(error.message);
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK(error.message.find(words) != std::string::npos);
  };
  Adapters of_sgd({}, {{"optimizer", std::string("sgd")}});
  int64_t made = -1;
  const auto load = [&](const std::string& from, const std::vector<Setting>& settings) {
    return tsr_adapter_trainer_load(of_sgd.trainer.get(), from.c_str(), options(settings).get(), &made);
  };
  refused(load(folder, {}), "optimizer 'adamw', this trainer has 'sgd'");
  ok(load(folder, alone));
  CHECK(factors_of(of_sgd.model_of(made)) == before);
  tsr_model* adapted = nullptr;
  ok(tsr_model_add_adapters(described(kModel).get(), options({{"rank", int64_t{4}}, {"alpha", 8.0}}).get(), &adapted));
  const Model model(adapted);
  const Runtime runtime = capi_test::runtime();
  tsr_trainer* plain = nullptr;
  ok(tsr_trainer_new(runtime.get(), model.get(), nullptr,
                     options({{"devices", std::string("cpu:1")}, {"batch", int64_t{1}}, {"seq", kSeq},
                              {"losses", std::string("cross_entropy")}}).get(), &plain));
  const Trainer trainer(plain);
  ok(tsr_trainer_resume(trainer.get(), folder.c_str()));
  ok(tsr_trainer_save_state(trainer.get(), bare.c_str(), options(alone).get()));
  refused(load(bare, {}), "holds parameters alone");
  ok(load(bare, alone));
  CHECK(factors_of(of_sgd.model_of(made)) == before);
  refused(load(bare, {{"optimiser", int64_t{0}}}), "optimiser");
}

TEST_CASE("what fails for one adapter, or is dropped, leaves the bits of the others") {
  Adapters quiet, loud;
  const Trained alone = train(quiet, {kTenants[0]})[0];
  const int64_t bad = loud.add(kTenants[2].adapter), gone = loud.add(kTenants[1].adapter);
  const Rows rows(6, 21);
  std::vector<int64_t> failed;
  for (int i = 0; i < 2; ++i) {
    loud.queue(bad, rows, "cross_entropy", 1e30);  // the square of its gradient is no f32
    failed.push_back(loud.update(bad));
  }
  loud.queue(gone, rows, "ppo");
  const int64_t cancelled = loud.queue_forward(bad, rows);
  ok(tsr_adapter_trainer_cancel_pass(loud.trainer.get(), cancelled));
  ok(tsr_adapter_trainer_drop(loud.trainer.get(), gone));
  const Values before = factors_of(loud.model_of(bad));
  const Trained found = train(loud, {kTenants[0]})[0];  // the bad one's passes wait, too
  CHECK(found.factors == alone.factors);
  CHECK(factors_of(loud.model_of(bad)) == before);
  CHECK(loud.report()["adapters"].size() == 2);
}

TEST_CASE("adapters take turns by rows, and a batch is filled up") {
  Adapters adapters;
  const int64_t first = adapters.add({{"rank", int64_t{2}}}), second = adapters.add({{"rank", int64_t{2}}});
  adapters.queue_forward(first, Rows(20, 1));
  const int64_t shorter = adapters.queue_forward(second, Rows(2, 2));
  const std::string done =
      text([&](tsr_text** out) { return tsr_adapter_trainer_next(adapters.trainer.get(), out); });
  CHECK(Json::parse(done)["pass"] == shorter);  // its two rows share the first batch of four
  CHECK(adapters.report()["runs"] == 1);
  adapters.finish();
  CHECK(adapters.report()["runs"] == 6);  // 2 rows, then 18 in batches of 4
  CHECK(adapters.report()["rows"] == 22);
  CHECK(adapters.report()["queued_tokens"] == 0);
}

TEST_CASE("adapters side by side: what is refused, with what was found and wanted") {
  Adapters adapters;
  const int64_t adapter = adapters.add({});
  const auto refused = [&](tsr_status* status, tsr_code code, const char* words) {
    const Error error = take(status);
    CAPTURE(error.message);
    CHECK(error.code == code);
    CHECK(error.message.find(words) != std::string::npos);
  };
  const auto add = [&](const std::vector<Setting>& settings) {
    int64_t made = -1;
    return tsr_adapter_trainer_add(adapters.trainer.get(), options(settings).get(), &made);
  };
  refused(add({{"rank", int64_t{5}}}), TSR_INVALID_ARGUMENT, "slots have room for 4");
  refused(add({{"dora", int64_t{1}}}), TSR_UNSUPPORTED, "DoRA");
  refused(add({{"dropout", 0.1}}), TSR_INVALID_ARGUMENT, "adapter_dropout 1");
  refused(add({{"on", std::string("lm_head")}}), TSR_INVALID_ARGUMENT, "adapter_weights");
  refused(add({{"ran", int64_t{5}}}), TSR_INVALID_ARGUMENT, "rank");
  for (int i = 0; i < 2; ++i) adapters.add({});
  refused(add({}), TSR_BUSY, "all 3 slots");
  Rows rows(2);
  tsr_batch batch = rows.batch();
  int64_t pass = -1;
  const auto loss = [&](int64_t of, const char* name, const std::vector<Setting>& settings = {}) {
    return tsr_adapter_trainer_forward_backward(adapters.trainer.get(), of, &batch, name, options(settings).get(), &pass);
  };
  refused(loss(9, "cross_entropy"), TSR_NOT_FOUND, "adapter 9");
  refused(loss(adapter, "dro"), TSR_FAILED_PRECONDITION, "losses");
  refused(loss(adapter, "cross_entropy", {{"aux_scale", 1.0}}), TSR_INVALID_ARGUMENT, "aux_scale");
  rows.tokens[3] = 64;
  refused(loss(adapter, "cross_entropy"), TSR_INVALID_ARGUMENT, "64");
  rows.tokens[3] = 1;
  rows.sampler[0] = std::nanf("");
  refused(loss(adapter, "ppo"), TSR_INVALID_ARGUMENT, "sampler_logprobs");
  batch.seq = kSeq + 1;
  refused(loss(adapter, "cross_entropy"), TSR_INVALID_ARGUMENT, "option seq");
  const int64_t update = adapters.update(adapter);
  CHECK(adapters.finish()[update].json["error"]["code"] == TSR_FAILED_PRECONDITION);
  refused(tsr_adapter_trainer_cancel_pass(adapters.trainer.get(), update), TSR_NOT_FOUND, "does not wait");
  Adapters of_documents({}, {{"losses", std::string("gspo")}});  // one adapter's weights would fail the others' passes in a run
  const std::vector<float> weightless(rows.tokens.size(), 0.0f);
  Rows weighed(2);
  tsr_batch without = weighed.batch();
  without.weights = weightless.data();
  refused(tsr_adapter_trainer_forward_backward(of_documents.trainer.get(), of_documents.add({}), &without, "gspo", nullptr, &pass),
          TSR_INVALID_ARGUMENT, "weight");
  tsr_adapter_trainer* made = nullptr;
  const auto with = [&](const std::vector<Setting>& more, const char* model = kModel) {
    std::vector<Setting> words = {{"seq", kSeq}};
    words.insert(words.end(), more.begin(), more.end());
    return tsr_adapter_trainer_new(runtime().get(), described(model).get(), options(words).get(), &made);
  };
  refused(with({{"optimizer", std::string("adafactor")}}), TSR_INVALID_ARGUMENT, "wanted adamw, lion or sgd");
  refused(with({{"optimizer", std::string("adamw8")}}, "llama:L=1,C=128,H=4,F=128,V=64,T=16"), TSR_UNSUPPORTED, "choose adamw");
  refused(with({{"precision", std::string("bf16")}}), TSR_INVALID_ARGUMENT, "precision");
  refused(with({{"adapter_rank", int64_t{40}}}), TSR_INVALID_ARGUMENT, "rank");
  tsr_trainer* plain = nullptr;
  refused(tsr_trainer_new(runtime().get(), described(kModel).get(), nullptr,
                          options({{"adapters", int64_t{2}}, {"seq", kSeq}, {"losses", std::string("cross_entropy")}}).get(), &plain),
          TSR_INVALID_ARGUMENT, "tsr_adapter_trainer_new");
}

}  // namespace capi_test::step_parts

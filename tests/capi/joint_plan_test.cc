// Joint plans: the memory of a trainer and of engines over one model, against what they hold.
#include <string>

#include "tests/capi/engine_events.h"

using namespace capi_test;
using tessera::Json;

namespace {

constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=256,T=64";

Json joint_plan(const Runtime& rt, const Model& model, std::initializer_list<Setting> chosen) {
  return Json::parse(text([&](auto... out) {
    return tsr_plan_jointly(rt.get(), model.get(), nullptr, options({{"batch", 4}, {"seq", 32}}).get(),
                            options({{"context", 64}, {"sequences", 4}}).get(), options(chosen).get(), out...);
  }));
}

}  // namespace

TEST_CASE("a joint plan has the bytes of the trainer and of the engine on its weights, the weights once") {
  const Runtime rt = runtime();
  const Model model = bytes_model(kModel, 7);
  const Json plan = joint_plan(rt, model, {{"engines", 2}});
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(rt.get(), model.get(), nullptr,
                     options({{"batch", 4}, {"seq", 32}, {"losses", std::string("cross_entropy")}}).get(), &made));
  const Trainer trainer(made);
  tsr_engine* engine = nullptr;
  ok(tsr_engine_new_for_trainer(trainer.get(), options({{"context", 64}, {"sequences", 4}}).get(), &engine));
  const Engine owner(engine);
  const Json report = Json::parse(text([&](auto... out) { return tsr_engine_report(engine, out...); }));
  const Json& device = report["devices"][0];
  CHECK(plan["engines"].size() == 2);
  CHECK(plan["engines"][1]["devices"][0] == device["arena_bytes"]["predicted"]);
  CHECK(plan["engines"][1]["shared_bytes"] == device["shared_weight_bytes"]);
  const int64_t total = plan["bytes"].get<int64_t>();
  CHECK(total == plan["trainer"]["bytes"].get<int64_t>() + 2 * plan["engines"][0]["bytes"].get<int64_t>());
  tsr_text* none = nullptr;
  tsr_status* refused = tsr_plan_jointly(rt.get(), model.get(), nullptr, options({{"batch", 4}, {"seq", 32}}).get(),
                                         options({{"context", 64}, {"sequences", 4}}).get(),
                                         options({{"engines", 2}, {"memory_limit", total - 1}}).get(), &none);
  int64_t needed = 0;
  CHECK(tsr_status_number(refused, "needed_bytes", &needed) == 1);
  CHECK(needed == total);
  CHECK(take(refused).code == TSR_OUT_OF_MEMORY);
}

TEST_CASE("a joint plan counts weights once that engines of one model share") {
  const Runtime rt = runtime();
  const Model model = bytes_model(kModel, 7);
  const Json plan = joint_plan(rt, model, {{"engines", 2}, {"weights", std::string("model")}});
  // The trainer trains them all: it has its own.
  CHECK(plan["engines"][0]["shared_bytes"] == 0);
  CHECK(plan["engines"][1]["shared_bytes"].get<int64_t>() > 0);
  tsr_model* adapted = nullptr;
  ok(tsr_model_add_adapters(model.get(), options({{"rank", 4}}).get(), &adapted));
  const Json frozen = joint_plan(rt, Model(adapted), {{"weights", std::string("model")}});
  CHECK(frozen["engines"][0]["shared_bytes"].get<int64_t>() > 0);
}

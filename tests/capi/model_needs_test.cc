// tsr_model_needs: the memory of generating and of training, by the planner.
#include <string>

#include "c_api.h"
#include "text/json.h"

using namespace capi_test;
using tessera::Json;

namespace {

Model llama() {
  tsr_model* made = nullptr;
  ok(tsr_model_new("llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=64", nullptr, &made));
  return Model(made);
}

Json needs_of(const Runtime& rt, const Model& model, const Options& options) {
  return Json::parse(text([&](auto... out) { return tsr_model_needs(rt.get(), model.get(), options.get(), out...); }));
}

}  // namespace

TEST_CASE("the memory that a model needs is that of its plans") {
  const Runtime rt = runtime();
  const Model model = llama();
  const Json needs = needs_of(rt, model, options({{"devices", std::string("cpu:2")}, {"batch", int64_t{2}}}));
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(rt.get(), model.get(),
                  options({{"devices", std::string("cpu:2")}, {"batch", int64_t{2}}, {"seq", int64_t{64}}}).get(), &made));
  const Plan plan(made);
  const Json info = Json::parse(text([&](auto... out) { return tsr_plan_info(plan.get(), out...); }));
  REQUIRE(needs["full"]["bytes"].size() == 2);
  for (size_t device = 0; device < 2; ++device)
    CHECK(needs["full"]["bytes"][device] == info["devices"][device]["arena_bytes"]["predicted"]);
  CHECK(needs["full"]["plan"] == info["strategy"]);
  CHECK(needs["inference"]["context"] == 64);  // the model's, where the default is longer
  CHECK(needs["lora"]["bytes"][0] < needs["full"]["bytes"][0]);
}

TEST_CASE("what cannot be planned says why, and options that nothing knows are refused") {
  const Runtime rt = runtime();
  const Model model = llama();
  const Json needs = needs_of(rt, model, options({{"memory_limit", std::string("64KiB")}}));
  for (const char* use : {"inference", "lora", "full"}) CHECK(needs[use].contains("error"));
  tsr_text* out = nullptr;
  const Error error =
      take(tsr_model_needs(rt.get(), model.get(), options({{"memory_limits", std::string("64KiB")}}).get(), &out));
  CHECK(error.code == TSR_INVALID_ARGUMENT);
  CHECK(error.message.find("memory_limit") != std::string::npos);
}

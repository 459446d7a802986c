// Methods of training by the memory that they need; the training has the planned bytes.
#include <algorithm>
#include <string>

#include "tests/capi/c_api.h"
#include "tests/capi/small_training.h"
#include "tests/number_after.h"

using namespace capi_test;
using tessera::test::number_after;

namespace {

constexpr const char* kModel = "llama:L=2,C=128,H=4,KV=2,F=256,V=256,T=32";

Error planned(const Runtime& runtime, const Model& model, const Dataset& dataset,
              std::initializer_list<Setting> settings, std::string* report = nullptr) {
  tsr_text* made = nullptr;
  Error error = take(tsr_plan_methods(runtime.get(), model.get(), dataset.get(), options(settings).get(),
                                      options({{"rank", 4}}).get(), &made));
  if (report && made) *report = tsr_text_data(made);
  tsr_text_free(made);
  return error;
}

// The report of a method.
std::string part_of(const std::string& report, const std::string& method) {
  const size_t at = report.find("{\"method\":\"" + method + "\",\"weight_bytes\"");
  REQUIRE_MESSAGE(at != std::string::npos, report);
  return report.substr(at, report.find('}', at) - at);
}

Model made_for(const Model& model, const char* method, int64_t rank) {
  tsr_model* made = nullptr;
  ok(tsr_model_for_method(model.get(), method, rank > 0 ? options({{"rank", rank}}).get() : nullptr, &made));
  return Model(made);
}

}  // namespace

TEST_CASE("the richest method that fits is chosen, with the bytes that its training then has") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model model = described(kModel);
  std::string report;
  REQUIRE(planned(runtime, model, dataset, {{"batch", 1}}, &report).code == TSR_OK);
  CHECK_MESSAGE(report.starts_with(R"({"method":"full","methods":[)"), report);
  const int64_t full = number_after(part_of(report, "full"), "\"bytes\":["),
                lora = number_after(part_of(report, "lora"), "\"bytes\":["),
                eight = number_after(part_of(report, "qlora:q8_0"), "\"bytes\":["),
                four = number_after(part_of(report, "qlora:nf4"), "\"bytes\":[");
  CHECK(full > lora);
  CHECK(lora > eight);
  CHECK(eight > four);

  for (const auto& [method, bytes] : {std::pair("lora", lora), std::pair("qlora:q8_0", eight)}) {
    CAPTURE(method);
    std::string limited;
    const Error error = planned(runtime, model, dataset, {{"batch", 1}, {"memory_limit", bytes}}, &limited);
    REQUIRE_MESSAGE(error.code == TSR_OK, error.message);
    CHECK_MESSAGE(limited.starts_with(std::string(R"({"method":")") + method + '"'), limited);
    // Without offload to a file, with which nearly everything fits, it does not.
    const std::string full_part = part_of(limited, "full");
    CHECK((full_part.find("\"fits\":false") != std::string::npos ||
           number_after(full_part, "\"file_bytes\":[") > 0));
    const Model chosen = made_for(model, method, 4);
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(runtime.get(), chosen.get(), dataset.get(),
                       options({{"batch", 1}, {"memory_limit", bytes}, {"lr", 1e-2}, {"warmup", 0}}).get(),
                       &made));
    const Trainer trainer(made);
    const std::string report_text =
        text([&](tsr_text** out) { return tsr_trainer_report(trainer.get(), out); });
    CHECK(number_after(report_text.substr(report_text.find("\"arena_bytes\"")), "\"predicted\":") ==
          number_after(part_of(limited, method), "\"bytes\":["));
    const double first = one_step(trainer);
    double last = first;
    for (int step = 0; step < 10; ++step) last = one_step(trainer);
    CHECK(last < first);
  }

  const Error nothing = planned(runtime, model, dataset, {{"batch", 1}, {"memory_limit", int64_t{20000}}});
  CHECK(nothing.code == TSR_OUT_OF_MEMORY);
  CHECK_MESSAGE(
      nothing.message.find("no method fits the memory limit; the nearest is qlora:nf4") != std::string::npos,
      nothing.message);
}

TEST_CASE("a method by name is planned alone, and what is none is refused") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model model = described(kModel);
  std::string report;
  CHECK(planned(runtime, model, dataset, {{"method", std::string("qlora:q4_k_m")}}, &report).code == TSR_OK);
  CHECK_MESSAGE(report.find("\"full\"") == std::string::npos, report);
  for (const char* method : {"qlora:", "qlora:q3", "dora", ""}) {
    CAPTURE(method);
    CHECK(planned(runtime, model, dataset, {{"method", std::string(method)}}).code == TSR_INVALID_ARGUMENT);
    tsr_model* made = nullptr;
    CHECK(take(tsr_model_for_method(model.get(), method, nullptr, &made)).code == TSR_INVALID_ARGUMENT);
  }
  tsr_model* made = nullptr;
  CHECK(take(tsr_model_for_method(model.get(), "auto", nullptr, &made)).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_model_for_method(model.get(), "full", options({{"rank", 4}}).get(), &made)).code ==
        TSR_INVALID_ARGUMENT);
  const Model adapted = made_for(model, "lora", 4);
  CHECK(planned(runtime, adapted, dataset, {}).code == TSR_INVALID_ARGUMENT);
  CHECK(take(tsr_model_for_method(adapted.get(), "full", nullptr, &made)).code == TSR_INVALID_ARGUMENT);
}

// Estimates of steps on devices that are absent, their explanations and certificates, through C.
#include <fstream>

#include "c_api.h"
#include "tests/capi/small_training.h"
#include "text/json.h"

using namespace capi_test;

namespace {

// The certificate that an estimate's JSON holds.
std::string certificate_of(const std::string& estimate) {
  const size_t begin = estimate.find("{\"format\":\"tessera-certificate\"");
  REQUIRE(begin != std::string::npos);
  size_t end = begin;
  for (int depth = 0;; ++end) {
    if (estimate[end] == '{') ++depth;
    if (estimate[end] == '}' && --depth == 0) break;
  }
  return estimate.substr(begin, end - begin + 1);
}

}  // namespace

TEST_CASE("a step on devices that are absent is priced as worded, or the fastest is searched") {
  const auto estimate = [](std::initializer_list<Setting> settings) {
    return text([&](auto... out) {
      return tsr_plan_estimate("gpt2:L=24,C=2048,H=16,V=51200,T=1024", options(settings).get(), out...);
    });
  };
  const Setting cluster = {"cluster", std::string("dgx-a100-80gb:16")}, batch = {"batch", int64_t{64}};
  const std::string priced =
      estimate({cluster, batch, {"parallel", std::string("tp=2,dp=4,pp=2:1f1b,mb=2,recompute=full")}});
  CHECK(priced.find("\"parallel\":\"dp=4,tp=2,pp=2:1f1b,mb=2,recompute=full\"") != std::string::npos);
  CHECK(priced.find("\"gap\"") == std::string::npos);
  const std::string searched = estimate({cluster,
                                         batch,
                                         {"parallel", std::string("tp=2,mb=2")},
                                         {"memory_limit", std::string("30GiB")},
                                         {"within", 0.05}});
  CHECK(searched.find("tp=2,") != std::string::npos);
  for (const char* key :
       {"\"gap\"", "\"bound_seconds\"", "\"stages\"", "\"candidates\"", "\"fastest\"", "\"fits\":true"})
    CHECK_MESSAGE(searched.find(key) != std::string::npos, key);

  const auto refused = [](std::initializer_list<Setting> settings) {
    tsr_text* estimate = nullptr;
    return take(
        tsr_plan_estimate("gpt2:L=24,C=2048,H=16,V=51200,T=1024", options(settings).get(), &estimate));
  };
  const Setting h100 = {"cluster", std::string("dgx-h100:8")};
  CHECK(refused({}).message.find("'cluster' is missing") != std::string::npos);
  CHECK(refused({h100, {"certificate", int64_t{1}}, {"within", 0.02}}).message.find("certified") !=
        std::string::npos);
  CHECK(refused({{"cluster", std::string("dgx-b100:8")}}).code == TSR_NOT_FOUND);
  CHECK(refused({{"cluster", std::string("absent.json")}}).code == TSR_NOT_FOUND);
  // Options of present devices are refused by name, and so are options without effect.
  CHECK(refused({h100, {"devices", std::string("cpu:2")}}).message.find("belongs to devices at hand") !=
        std::string::npos);
  CHECK(refused({h100, {"features", std::string("attention=unfused")}}).message.find("other software") !=
        std::string::npos);
  CHECK(refused({h100, {"accumulate", int64_t{2}}}).message.find("as 'batch'") != std::string::npos);
  CHECK(refused({h100, {"optimizer", std::string("muon")}}).message.find("have owners") != std::string::npos);
  CHECK(refused({h100, {"base", std::string("nf5")}}).message.find("nf4") != std::string::npos);
  CHECK(refused({h100, {"base", std::string("nf4")}}).message.find("'lora'") != std::string::npos);
  CHECK(refused({cluster, {"precision", std::string("fp8")}}).message.find("name bf16") != std::string::npos);
  CHECK(refused({h100, {"lorra", int64_t{8}}}).code == TSR_INVALID_ARGUMENT);
  // Memory that a file does not tell has to be given, to be planned or served within.
  const Scratch scratch;
  std::ofstream(scratch / "bare.json")
      << R"({"format": "tessera-cluster", "version": 1, "devices": [{"kind": "bare", "count": 2}], "kinds":
             [{"name": "bare", "matmul_flops_per_s": 1e14, "memory_bytes_per_s": 1e12}],
             "link": {"bytes_per_s": 1e10, "latency_s": 1e-5}})";
  const Error bare[] = {refused({{"cluster", scratch / "bare.json"}}),
                        refused({{"cluster", scratch / "bare.json"}, {"mode", std::string("generate")}, {"prompt", int64_t{64}}})};
  for (const Error& error : bare) {
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK_MESSAGE(error.message.find("'bare' has memory_bytes = 0") != std::string::npos, error.message);
  }
  const Error little =
      refused({h100, {"memory_limit", std::string("4GiB")}, {"parallel", std::string("tp=1,mb=1")}});
  CHECK(little.code == TSR_OUT_OF_MEMORY);
  CHECK_MESSAGE(little.message.find("the smallest limit that was found to work is") != std::string::npos,
                little.message);
  // It includes the device's reserve, so that it works as an option.
  const std::string smallest = little.message.substr(little.message.find('(') + 1);
  CHECK(estimate(
            {h100, {"parallel", std::string("tp=1,mb=1")}, {"memory_limit", int64_t{std::stoll(smallest)}}})
            .find("\"fits\":true") != std::string::npos);
  // Numbers that no schedule has, words that are none.
  const Setting one = {"cluster", std::string("dgx-h100:1")}, small = {"parallel", std::string("mb=1")};
  for (const int64_t many : {int64_t{1} << 32, int64_t{1} << 31, (int64_t{1} << 32) - 1}) {
    const Error error = refused({one, {"batch", many}, small});
    CHECK_MESSAGE(error.code == TSR_INVALID_ARGUMENT, error.message);
  }
  CHECK(refused({one, {"batch", int64_t{4294967291}}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused({h100, {"mode", std::string("genrate")}}).message.find("'genrate'") != std::string::npos);
  CHECK(refused({one, {"parallel", std::string("sp")}}).message.find("tp is 1") != std::string::npos);
}

TEST_CASE("an estimate is explained in its JSON and as a page") {
  const auto with = [](auto function) {
    return text([&](auto... out) {
      return function("gpt2:L=24,C=2048,H=16,V=51200,T=1024",
                      options({{"cluster", std::string("dgx-a100-80gb:16")},
                               {"batch", int64_t{64}},
                               {"parallel", std::string("pp=2,mb=2")}})
                          .get(),
                      out...);
    });
  };
  const std::string json = with(tsr_plan_estimate);
  for (const char* key :
       {"\"explanation\"", "\"lowered\":false", "\"cause\":\"activations\"", "\"runners_up\"", "\"words\""})
    CHECK_MESSAGE(json.find(key) != std::string::npos, key);
  CHECK(with(tsr_plan_estimate_page).find("\"timeline\"") != std::string::npos);
}

TEST_CASE(
    "an estimated plan is lowered block by block, and a searched one fits; whole it takes what is foretold") {
  const auto estimate = [](std::initializer_list<Setting> settings) {
    return text([&](auto... out) {
      return tsr_plan_estimate("gpt2:L=24,C=2304,H=24,V=51200,T=2048", options(settings).get(), out...);
    });
  };
  const Setting cluster = {"cluster", std::string("dgx-a100-40gb:16")}, batch = {"batch", int64_t{128}};
  const std::string given = estimate({cluster,
                                      batch,
                                      {"memory_limit", std::string("24GiB")},
                                      {"parallel", std::string("tp=1,dp=2,pp=8:zb-v,mb=4")}});
  CHECK(given.find("\"fits\":false") != std::string::npos);
  const Setting limit = {"memory_limit", std::string("10GiB")},
                pinned = {"parallel", std::string("pp=8:zb-h2,mb=1")};
  const std::string searched = estimate({cluster, batch, limit, pinned, {"verify", std::string("on")}});
  CHECK(searched.find("\"fits\":true") != std::string::npos);
  CHECK(searched.find("\"verified\":{\"devices\":[{\"device\":0,") != std::string::npos);
  const std::string composed = estimate({cluster, batch, limit, pinned, {"verify", std::string("off")}});
  CHECK(composed.find("\"verified\"") == std::string::npos);
}

TEST_CASE("adapters over blocks, frozen parameters and other optimizers are planned for absent devices") {
  const auto bytes_of = [](const Setting& one, const Setting& other = {"within", 0.0}) {
    const std::string json = text([&](auto... out) {
      return tsr_plan_estimate("llama:L=4,C=1024,H=8,KV=2,F=2048,V=8192,T=512",
                               options({{"cluster", std::string("dgx-h100:8")},
                                        {"batch", int64_t{16}},
                                        {"parallel", std::string("dp=8,mb=1")},
                                        one,
                                        other})
                                   .get(),
                               out...);
    });
    const std::string key = "\"memory_bytes\":";
    return std::stoll(json.substr(json.find(key) + key.size()));
  };
  const Setting rank = {"lora", int64_t{8}};
  const int64_t full = bytes_of({"optimizer", std::string("adamw")}), adapters = bytes_of(rank),
                quantised = bytes_of(rank, {"base", std::string("nf4")}),
                sgd = bytes_of({"optimizer", std::string("sgd")}),
                frozen = bytes_of({"frozen", std::string("block.0.*")});
  CHECK(adapters < full);
  CHECK(quantised < adapters);
  CHECK(sgd < full);
  CHECK(frozen < full);
}

TEST_CASE("an estimate of adapters, side by side or alone, has the weights and the memory of the trainer's own plan") {
  const char* const model = "moe:L=4,C=64,H=4,KV=2,F=96,E=4,V=128,T=16,capacity=0";
  struct Memory {
    int64_t all = 0, parameters = 0;
  };
  const auto memory_of = [](const tessera::Json& explanation) {
    Memory memory{explanation["memory_bytes"].get<int64_t>()};
    for (const tessera::Json& it : explanation["memory"]) {
      if (it["cause"] == "parameters") memory.parameters = it["bytes"].get<int64_t>();
      if (it["cause"] == "reserved") memory.all -= it["bytes"].get<int64_t>();
    }
    return memory;
  };
  const Setting batch = {"batch", int64_t{4}}, micro_batch = {"parallel", std::string("mb=4")};
  const auto estimated = [&](std::vector<Setting> settings) {
    settings.insert(settings.end(), {batch, micro_batch, {"cluster", std::string("cpu:1")}, {"precision", std::string("f32")}});
    return memory_of(tessera::Json::parse(
        text([&](auto... out) { return tsr_plan_estimate(model, options(settings).get(), out...); }))["explanation"]);
  };
  const auto planned = [&](const Model& of, std::vector<Setting> settings) {
    settings.insert(settings.end(), {batch, micro_batch, {"devices", std::string("cpu:1")}, {"seq", int64_t{16}},
                                     {"fused_loss", std::string("off")}});
    tsr_plan* plan = nullptr;
    ok(tsr_plan_new(runtime().get(), of.get(), options(settings).get(), &plan));
    const Plan held(plan);
    return memory_of(tessera::Json::parse(text([&](tsr_text** out) { return tsr_plan_explain(plan, out); })));
  };
  const auto compare = [](const Memory& estimate, const Memory& plan) {
    CHECK(estimate.parameters == plan.parameters);
    // The plan has the inputs of passes that are not steps, too, and each at an address of its own.
    CHECK(estimate.all <= plan.all);
    CHECK(plan.all - estimate.all < 8192);
  };
  const Model base = described(model);
  for (const std::vector<Setting>& slots : std::vector<std::vector<Setting>>{
           {{"adapters", int64_t{3}}, {"adapter_rank", int64_t{8}}},  // routers have none
           {{"adapters", int64_t{2}}, {"adapter_weights", std::string("q_proj,o_proj")}, {"adapter_dropout", int64_t{1}}}}) {
    std::vector<Setting> with_loss = slots;
    with_loss.emplace_back("losses", std::string("cross_entropy"));
    compare(estimated(slots), planned(base, with_loss));
  }
  tsr_model* made = nullptr;
  ok(tsr_model_add_adapters(base.get(), options({{"rank", int64_t{4}}}).get(), &made));
  compare(estimated({{"lora", int64_t{4}}}), planned(Model(made), {}));
  const auto refusal = [&](std::vector<Setting> settings) {
    settings.insert(settings.end(), {batch, {"cluster", std::string("cpu:1")}});
    tsr_text* found = nullptr;
    return take(tsr_plan_estimate(model, options(settings).get(), &found)).message;
  };
  const Setting adapters = {"adapters", int64_t{2}};
  CHECK(refusal({adapters, {"lora", int64_t{4}}}).find("leave out one") != std::string::npos);
  CHECK(refusal({{"losses", std::string("ppo")}}).find("option adapters") != std::string::npos);
  const std::string unlike = refusal({adapters, {"adapter_weights", std::string("block.1.q,k_proj")}});
  CHECK_MESSAGE(unlike.find("other weights of block") != std::string::npos, unlike);
}

TEST_CASE("certificates of searched steps are checked, and refused when something in them is changed") {
  const std::string estimate = text([&](auto... out) {
    return tsr_plan_estimate("gpt2:L=12,C=1024,H=16,V=51200,T=1024",
                             options({{"cluster", std::string("dgx-a100-40gb:8")},
                                      {"batch", int64_t{32}},
                                      {"parallel", std::string("mb=2")},
                                      {"certificate", int64_t{1}}})
                                 .get(),
                             out...);
  });
  const std::string good = certificate_of(estimate);
  const auto check = [](const std::string& certificate) {
    tsr_text* report = nullptr;
    const Error error = take(tsr_plan_check(certificate.c_str(), &report));
    tsr_text_free(report);
    return error;
  };
  CHECK(check(good).code == TSR_OK);
  CHECK(text([&](auto... out) { return tsr_plan_check(good.c_str(), out...); }).find("\"valid\":true") !=
        std::string::npos);
  const auto refused = [&](const std::string& from, const std::string& to, const char* says) {
    const size_t at = good.find(from);
    REQUIRE_MESSAGE(at != std::string::npos, from);
    const Error error = check(std::string(good).replace(at, from.size(), to));
    CHECK(error.code == TSR_CORRUPT);
    CHECK_MESSAGE(error.message.find(says) != std::string::npos, error.message);
  };
  refused("tessera-certificate", "other", "wanted 'tessera-certificate'");
  refused("\"version\":3", "\"version\":9", "found version 9, wanted 3: write it again");
  refused("\"version\":3", "\"version\":2", "found version 2, wanted 3: write it again");
  refused("dgx-a100-40gb:8", "dgx-a100-80gb:8", "another cluster");
  refused("\"batch\":32", "\"batch\":64", "is listed");
  refused("\"step_seconds\":", "\"step_seconds\":1", "a gap of");
  refused("\"gap\":", "\"gap\":1", "a gap of");
  refused("\"configurations\":[[", "\"configurations\":[[\"dp=8,mb=2\",1],[",
          "is not [plan, seconds, bytes]");
  refused("\"configurations\":[[", "\"configurations\":[[\"dp=8,mb=2\",1.5,12],[", "is no plan of the space");
  // Sums with it would pass 64 bits.
  const std::string limit = "\"memory_limit\":";
  CHECK(check(std::string(good).insert(good.find(limit) + limit.size(), "922337203685477580")).code ==
        TSR_CORRUPT);
  CHECK(check("{").code == TSR_CORRUPT);
  CHECK(check("[]").code == TSR_CORRUPT);
}

TEST_CASE("a file is estimated by its own description, for fewer tokens and by methods too") {
  const Scratch scratch;
  const std::string description = "llama:L=2,C=64,H=4,KV=2,F=128,V=256,T=1024";
  const Model model = described(description.c_str());
  const std::string path = scratch / "model.tsr";
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  const auto estimate = [](const std::string& of, std::initializer_list<Setting> settings) {
    return text([&](auto... out) { return tsr_plan_estimate(of.c_str(), options(settings).get(), out...); });
  };
  const auto behind = [](const std::string& json) {  // the model's name is before it and in the explanation
    const size_t at = json.find("\"parallel\"");
    return json.substr(at, json.find("\"explanation\"") - at);
  };
  const Setting cluster = {"cluster", std::string("pcie-rtx-4090:2")};
  const std::string of_file = estimate(path, {cluster});
  CHECK(of_file.find("\"description\":\"" + description) != std::string::npos);
  CHECK(behind(of_file) == behind(estimate(description, {cluster})));
  CHECK(estimate(path, {cluster, {"seq", int64_t{64}}}).find("\"tokens\":64") != std::string::npos);
  const std::string chosen = estimate(path, {cluster, {"method", std::string("auto")}});
  CHECK(chosen.find("\"method\":\"full\"") != std::string::npos);
  CHECK(chosen.find("\"method\":\"qlora:nf4\"") != std::string::npos);
  CHECK(estimate(path, {cluster, {"mode", std::string("generate")}}).find("tokens_per_second") != std::string::npos);
  const auto refused = [&](const std::string& of, std::initializer_list<Setting> settings) {
    tsr_text* made = nullptr;
    return take(tsr_plan_estimate(of.c_str(), options(settings).get(), &made));
  };
  CHECK(refused(path, {cluster, {"seq", int64_t{2048}}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused(scratch / "absent.gguf", {cluster}).code == TSR_NOT_FOUND);
  CHECK(refused(path, {cluster, {"method", std::string("full")}, {"lora", int64_t{8}}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused(path, {cluster, {"method", std::string("qlora:q9")}}).code == TSR_INVALID_ARGUMENT);
}

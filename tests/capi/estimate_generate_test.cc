// Estimates of text generation on devices that are absent, and their explanations, through C.
#include "c_api.h"

using namespace capi_test;

TEST_CASE("the best way to generate text on absent devices is searched and explained, whatever the family") {
  for (const char* model :
       {"llama:L=4,C=512,H=8,KV=4,F=1024,V=32000,T=2048", "gpt2:L=3,C=768,H=12,V=50257,T=1024",
        "gpt2:L=1,C=64,H=4,V=100,T=1024", "moe:L=4,C=512,H=8,KV=4,F=512,E=4,K=2,V=32000,T=4096"}) {
    const auto with = [&](auto function, const char* cluster) {
      return text([&](auto... out) {
        return function(model,
                        options({{"cluster", std::string(cluster)},
                                 {"mode", std::string("generate")},
                                 {"parallel", std::string("batch=8")},
                                 {"prompt", int64_t{100}},
                                 {"new", int64_t{20}}})
                            .get(),
                        out...);
      });
    };
    const std::string json = with(tsr_plan_estimate, "dgx-h100:4");
    for (const char* key :
         {"\"mode\":\"generate\"", "\"parameters\"", "\"parallel\":\"tp=", "\"time_to_first_token_seconds\"",
          "\"time_per_token_seconds\"", "\"request_seconds\"", "\"tokens_per_second\"", "\"kv_bytes\"",
          "\"weight_bytes\"", "\"memory_bytes\"", "\"reserved_bytes\"", "\"token_seconds\"", "\"bound\"",
          "\"gap\"", "\"candidates\"", "\"search\"", "\"serving\"", "\"phase\":\"decode\"",
          "\"cause\":\"caches\""})
      CHECK_MESSAGE(json.find(key) != std::string::npos, key);
    CHECK(json.find("\"kinds\"") == std::string::npos);
    CHECK(with(tsr_plan_estimate, "dgx-a100-80gb:4+dgx-h100:4").find("\"idle\":\"4 ") != std::string::npos);
    CHECK(with(tsr_plan_estimate_page, "dgx-h100:4").find("\"timeline\"") != std::string::npos);
  }
}

TEST_CASE("what cannot be generated on absent devices is refused in words") {
  const auto refused = [](const char* model, std::initializer_list<Setting> settings) {
    tsr_text* estimate = nullptr;
    return take(tsr_plan_estimate(model, options(settings).get(), &estimate));
  };
  const Setting cluster = {"cluster", std::string("dgx-h100:8")}, mode = {"mode", std::string("generate")};
  const char* gpt2 = "gpt2:L=12,C=768,H=12,V=50257,T=1024";
  CHECK(refused(gpt2, {cluster, mode, {"prompt", int64_t{1000}}}).message.find("context is T = 1024") !=
        std::string::npos);
  CHECK(refused(gpt2, {cluster, mode, {"batch", int64_t{1} << 32}}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused(gpt2, {cluster, mode, {"batch", (int64_t{1} << 26) - 1}}).code == TSR_OUT_OF_MEMORY);
  CHECK(refused(gpt2, {cluster, mode, {"parallel", std::string("tp=5")}}).code == TSR_INVALID_ARGUMENT);
  // The words are those of --parallel, and read by its grammar.
  for (const auto& [parallel, says] : {std::pair("tp=2,cp=ring:2", "'cp=ring:2' is not known for generation"),
                                       std::pair("tp=2d:2x2", "'tp=2d:2x2' is not known for generation"),
                                       std::pair("pp=2:gpipe", "'pp=2:gpipe' is not known for generation"),
                                       std::pair("tp=2,tp=4", "tp is given twice"),
                                       std::pair("tpp=2", "unknown word 'tpp'"),
                                       std::pair("batch=2,batch=4", "'batch=4' where batch=N is wanted once")})
    CHECK(refused(gpt2, {cluster, mode, {"parallel", std::string(parallel)}}).message.find(says) != std::string::npos);
  CHECK(refused(gpt2, {cluster, mode, {"memory_limit", std::string("3GiB")}}).code == TSR_OUT_OF_MEMORY);
  CHECK(refused("bert:L=2,C=64,H=2,F=64,V=100,T=1024", {cluster, mode}).code == TSR_INVALID_ARGUMENT);
  CHECK(refused("mlp:L=2,C=784,F=256,V=10", {cluster, mode}).code != TSR_OK);
}

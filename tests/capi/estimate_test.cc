// Estimates of steps on devices that are absent, their explanations and certificates, through C.
#include <fstream>

#include "c_api.h"

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
  const std::string priced = estimate({{"cluster", std::string("dgx-a100-80gb:16")},
                                       {"batch", int64_t{64}},
                                       {"parallel", std::string("tp=2,dp=4,pp=2:1f1b,mb=2,recompute=full")},
                                       {"features", std::string("attention=unfused,dp_overlap=off")}});
  CHECK(priced.find("\"predicted_step_seconds\"") != std::string::npos);
  CHECK(priced.find("\"gap\"") == std::string::npos);
  const std::string searched = estimate({{"cluster", std::string("dgx-a100-80gb:16")},
                                         {"batch", int64_t{64}},
                                         {"parallel", std::string("tp=2")},
                                         {"memory_limit", std::string("30GiB")}});
  CHECK(searched.find("\"parallel\":\"tp=2,") != std::string::npos);
  for (const char* key : {"\"gap\"", "\"bound_seconds\"", "\"stages\"", "\"candidates\""})
    CHECK(searched.find(key) != std::string::npos);
  // tp=2 is predicted fastest, by less than prices are sure of.
  const auto near = [](double within) {
    return text([&](auto... out) {
      return tsr_plan_estimate("gpt2:L=24,C=2048,H=16,V=50257,T=1024",
                               options({{"cluster", std::string("dgx-a100-80gb:8")},
                                        {"batch", int64_t{64}},
                                        {"features", std::string("attention=unfused,dp_overlap=off")},
                                        {"within", within}})
                                   .get(),
                               out...);
    });
  };
  CHECK(near(0).find("\"parallel\":\"tp=2,") < near(0).find("\"fastest\""));
  const std::string steady = near(0.05);
  CHECK(steady.find("\"parallel\":\"tp=1,") < steady.find("\"fastest\":{\"parallel\":\"tp=2,"));
  CHECK(steady.find("\"fastest\":{\"parallel\":\"tp=2,") != std::string::npos);
  CHECK(steady.find("less than prices are sure of") != std::string::npos);

  const auto refused = [](std::initializer_list<Setting> settings) {
    tsr_text* estimate = nullptr;
    return take(
        tsr_plan_estimate("gpt2:L=24,C=2048,H=16,V=51200,T=1024", options(settings).get(), &estimate));
  };
  CHECK(refused({}).message.find("'cluster' is missing") != std::string::npos);
  CHECK(refused({{"cluster", std::string("dgx-h100:8")}, {"certificate", int64_t{1}}, {"within", 0.02}})
            .message.find("certified") != std::string::npos);
  CHECK(refused({{"cluster", std::string("dgx-b100:8")}}).code == TSR_NOT_FOUND);
  CHECK(refused({{"cluster", std::string("absent.json")}}).code == TSR_NOT_FOUND);
  // Memory that a file does not tell has to be given, to be planned or served within.
  const Scratch scratch;
  std::ofstream(scratch / "bare.json")
      << R"({"format": "tessera-cluster", "version": 1, "devices": [{"kind": "bare", "count": 2}], "kinds":
             [{"name": "bare", "matmul_flops_per_s": 1e14, "memory_bytes_per_s": 1e12}],
             "link": {"bytes_per_s": 1e10, "latency_s": 1e-5}})";
  const Error bare[] = {refused({{"cluster", scratch / "bare.json"}}),
                        refused({{"cluster", scratch / "bare.json"}, {"mode", std::string("generate")}})};
  for (const Error& error : bare) {
    CHECK(error.code == TSR_INVALID_ARGUMENT);
    CHECK_MESSAGE(error.message.find("'bare' has memory_bytes = 0") != std::string::npos, error.message);
  }
  CHECK(refused({{"cluster", std::string("dgx-h100:8")}, {"memory_limit", std::string("1GiB")}}).code ==
        TSR_OUT_OF_MEMORY);
}

TEST_CASE("an estimate is explained in its JSON and as a page") {
  const auto with = [](auto function) {
    return text([&](auto... out) {
      return function("gpt2:L=24,C=2048,H=16,V=51200,T=1024",
                      options({{"cluster", std::string("dgx-a100-80gb:16")}, {"batch", int64_t{64}}}).get(),
                      out...);
    });
  };
  const std::string json = with(tsr_plan_estimate);
  for (const char* key :
       {"\"explanation\"", "\"lowered\":false", "\"cause\":\"activations\"", "\"runners_up\""})
    CHECK_MESSAGE(json.find(key) != std::string::npos, key);
  CHECK(with(tsr_plan_estimate_page).find("\"timeline\"") != std::string::npos);
}

TEST_CASE("an estimated plan is lowered block by block, and a searched one fits") {
  const auto estimate = [](std::initializer_list<Setting> settings) {
    return text([&](auto... out) {
      return tsr_plan_estimate("gpt2:L=24,C=2304,H=24,V=51200,T=2048", options(settings).get(), out...);
    });
  };
  const Setting cluster = {"cluster", std::string("dgx-a100-40gb:16")}, batch = {"batch", int64_t{128}};
  CHECK(estimate({cluster, batch}).find("\"fits\":true") != std::string::npos);
  // Result gradients wait for the gradients of weights, which no formula has: this plan looks as if it fitted.
  const std::string given = estimate({cluster,
                                      batch,
                                      {"memory_limit", std::string("27GiB")},
                                      {"parallel", std::string("tp=1,dp=2,pp=8:zb-v,mb=4")}});
  CHECK(given.find("\"fits\":false") != std::string::npos);
  const Setting limit = {"memory_limit", std::string("10GiB")},
                pinned = {"parallel", std::string("pp=8:zb-h2")};
  const std::string searched = estimate({cluster, batch, limit, pinned, {"verify", std::string("on")}});
  CHECK(searched.find("\"fits\":true") != std::string::npos);
  CHECK(searched.find("lowered block by block it needs") != std::string::npos);
  CHECK(searched.find("\"verified\":{\"devices\":[{\"device\":0,") != std::string::npos);
  // Its certificate is of what plans were taken to hold, and checks.
  const std::string certificate =
      certificate_of(estimate({cluster, batch, limit, pinned, {"certificate", int64_t{1}}}));
  CHECK(text([&](auto... out) {
          return tsr_plan_check(certificate.c_str(), out...);
        }).find("\"valid\":true") != std::string::npos);
  const std::string composed = estimate({cluster, batch, limit, pinned, {"verify", std::string("off")}});
  CHECK(composed.find("\"verified\"") == std::string::npos);
  const std::string foreign = estimate({cluster, batch, {"features", std::string("attention=unfused")}});
  CHECK(foreign.find("\"skipped\":\"attention=unfused is a trait of other software\"") != std::string::npos);
}

TEST_CASE("certificates of searched steps are checked, and refused when something in them is changed") {
  const std::string estimate = text([&](auto... out) {
    return tsr_plan_estimate("gpt2:L=12,C=1024,H=16,V=51200,T=1024",
                             options({{"cluster", std::string("dgx-a100-40gb:8")},
                                      {"batch", int64_t{32}},
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
  refused("\"version\":2", "\"version\":9", "found version 9, wanted 2: write it again");
  refused("\"version\":2", "\"version\":1", "found version 1, wanted 2: write it again");
  refused("dgx-a100-40gb:8", "dgx-a100-80gb:8", "another cluster");
  refused("\"batch\":32", "\"batch\":64", "");
  refused("\"step_seconds\":", "\"step_seconds\":1", "is claimed");
  refused("\"gap\":", "\"gap\":1", "a gap of");
  refused("\"solved\"", "\"guessed\"", "is closed by 'guessed'");
  refused("\"configurations\":[[", "\"configurations\":[[\"tp=1\",\"solved\",-1,1],[", "has a bound of");
  // Sums with it would pass 64 bits.
  const std::string limit = "\"memory_limit\":";
  CHECK(check(std::string(good).insert(good.find(limit) + limit.size(), "922337203685477580")).code ==
        TSR_INVALID_ARGUMENT);
  CHECK(check("{").code == TSR_CORRUPT);
  CHECK(check("[]").code == TSR_CORRUPT);
}

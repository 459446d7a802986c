// Plans of serving through C: an engine's memory before it is made.
#include <unistd.h>

#include <filesystem>
#include <string>
#include <vector>

#include "engine_events.h"

using namespace capi_test;

namespace {

// "key": the first number after it, from `from` on.
int64_t number_of(const std::string& json, const std::string& key, size_t from = 0) {
  const size_t at = json.find('"' + key + "\":", from);
  REQUIRE_MESSAGE(at != std::string::npos, key, " in ", json);
  return std::stoll(json.substr(at + key.size() + 3));
}

std::vector<int64_t> arenas_of(const std::string& json, size_t from) {
  std::vector<int64_t> bytes;
  const std::string key = "\"arena_bytes\":{\"predicted\":";
  for (size_t at = json.find(key, from); at != std::string::npos; at = json.find(key, at + 1))
    bytes.push_back(std::stoll(json.substr(at + key.size())));
  return bytes;
}

Model model_of(const char* description) {
  tsr_model* made = nullptr;
  ok(tsr_model_new(description, nullptr, &made));
  return Model(made);
}

struct ServingCase {
  const char* model;
  std::vector<Setting> options;
};

std::string serving_info(const Runtime& rt, const Model& model, std::vector<Setting> settings) {
  settings.emplace_back("mode", std::string("serve"));
  tsr_plan* made = nullptr;
  ok(tsr_plan_new(rt.get(), model.get(), options(settings).get(), &made));
  const Plan plan(made);
  return text([&](auto... out) { return tsr_plan_info(plan.get(), out...); });
}

}  // namespace

TEST_CASE("the plan of serving has the bytes that the engine reports") {
  const char* const plain = "llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=64";
  const char* const windows = "llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=512,windows=20|0";
  const char* const only_windows = "llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=512,windows=20|20";
  const char* const recurrent = "qwen3_5:L=4,C=64,H=4,KV=2,F=96,HS=8,GS=4,VS=12,KS=8,V=256,T=512,attention_every=2";
  const std::string drafting = std::string(recurrent) + ",MTP=1", mtp = "mtp";
  const int64_t few = 64;
  const ServingCase cases[] = {
      {plain, {}},
      {plain, {{"sequences", int64_t{2}}, {"cache_tokens", int64_t{300}}, {"cache_type", std::string("f16")}}},
      {plain, {{"sequences", int64_t{9}}, {"memory_limit", std::string("3600KiB")}}},
      {plain, {{"sequences", int64_t{5}}, {"devices", std::string("cpu:2")}, {"parallel", std::string("dp=2")}}},
      {plain, {{"sequences", int64_t{3}}, {"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2")}}},
      {plain, {{"adapters", int64_t{4}}, {"adapter_rank", int64_t{5}}, {"embeddings", int64_t{1}}}},
      {plain, {{"adapters", int64_t{4}}, {"adapter_rank", int64_t{5}}, {"adapter_on", std::string("blocks,head,tables")}}},
      {windows, {{"sequences", int64_t{9}}, {"step_tokens", few}}},
      {windows, {{"sequences", int64_t{9}}, {"step_tokens", few}, {"window_cache_tokens", int64_t{300}}}},
      {windows, {{"sequences", int64_t{9}}, {"step_tokens", few}, {"memory_limit", std::string("4MiB")}}},
      {only_windows, {{"sequences", int64_t{9}}, {"step_tokens", few}, {"memory_limit", std::string("4MiB")}}},
      {recurrent, {{"sequences", int64_t{5}}, {"step_tokens", few}}},
      {recurrent, {{"sequences", int64_t{5}}, {"state_snapshots", int64_t{9}}, {"memory_limit", std::string("4MiB")}}},
      {recurrent, {{"sequences", int64_t{3}}, {"devices", std::string("cpu:2")}, {"parallel", std::string("tp=2")}}},
      {drafting.c_str(), {{"sequences", int64_t{3}}, {"speculation", mtp}, {"step_tokens", few}}},
      {drafting.c_str(), {{"sequences", int64_t{3}}, {"speculation", mtp}, {"memory_limit", std::string("6MiB")}}}};
  const Runtime rt = runtime();
  for (const ServingCase& c : cases) {
    CAPTURE(c.model);
    const Model model = model_of(c.model);
    const std::string planned = serving_info(rt, model, c.options);
    CAPTURE(planned);
    const size_t serving = planned.find("\"serving\":");
    REQUIRE(serving != std::string::npos);
    tsr_engine* serves = nullptr;
    ok(tsr_engine_new(rt.get(), model.get(), options(c.options).get(), &serves));
    const Engine engine(serves);
    const std::string report = text([&](auto... out) { return tsr_engine_report(engine.get(), out...); });
    CAPTURE(report);
    for (const char* key : {"replicas", "context", "sequences", "cache_tokens"})
      CHECK(number_of(planned, key, serving) == number_of(report, key));
    CHECK(planned.find("\"fits\":false") == std::string::npos);
    const std::vector<int64_t> bytes = arenas_of(planned, serving);
    const std::string own_report = report.substr(0, report.find("\"draft_devices\":"));  // which is after "devices"
    CHECK(bytes == arenas_of(own_report, own_report.rfind("\"devices\":")));
    if (own_report.size() < report.size())
      CHECK(number_of(planned, "draft_bytes") == arenas_of(report, own_report.size()).front());
    CHECK(!bytes.empty());
  }
}

TEST_CASE("a plan of serving counts the sequences that fit, and says what does not") {
  const Runtime rt = runtime();
  const Model model = model_of("llama:L=2,C=64,H=4,KV=2,F=96,V=256,T=64");
  const std::string three = serving_info(rt, model, {{"sequences", int64_t{3}}});
  const int64_t arena = arenas_of(three, three.find("\"serving\":")).front();
  const auto fitting = [&](int64_t limit, int64_t sequences, int64_t tokens) {
    return serving_info(rt, model,
                        {{"sequences", sequences}, {"memory_limit", std::to_string(limit)}, {"cache_tokens", tokens}});
  };
  const std::string enough = fitting(arena + 1000, 3, 0), tight = fitting(arena - 1000, 3, 0);
  CHECK(number_of(enough, "sequences_that_fit") == 3);
  CHECK(number_of(tight, "sequences_that_fit") == 2);
  CHECK(number_of(tight, "cache_tokens") == 128);
  const std::string too_much = fitting(arena + 1000, 4, 256);
  CHECK(too_much.find("\"fits\":false") != std::string::npos);
  CHECK(number_of(too_much, "cache_tokens") == 256);
  // A draft model's memory is counted.
  const std::string path = (std::filesystem::temp_directory_path() / ("draft-" + std::to_string(getpid()) + ".tsr")).string();
  ok(tsr_model_save(model.get(), path.c_str(), nullptr));
  const std::string drafted = serving_info(
      rt, model, {{"sequences", int64_t{3}}, {"speculation", std::string("draft")}, {"draft_model", path}});
  std::filesystem::remove(path);
  CHECK(number_of(drafted, "draft_bytes") > number_of(drafted, "weight_bytes"));
  tsr_plan* made = nullptr;
  const Error refused = take(tsr_plan_new(
      rt.get(), model.get(), options({{"mode", std::string("serve")}, {"speculation", std::string("mtp")}}).get(), &made));
  CHECK(refused.code == TSR_INVALID_ARGUMENT);
  CHECK(refused.message.find("'speculation' mtp") != std::string::npos);
}

TEST_CASE("options of an engine are checked before its model is read") {
  ok(tsr_options_check(options({{"sequences", int64_t{3}}}).get(), "engine"));
  CHECK(take(tsr_options_check(options({{"sequence", int64_t{3}}}).get(), "engine")).message.find("sequences") !=
        std::string::npos);
  CHECK(take(tsr_options_check(options({{"mode", std::string("serve")}, {"batch", int64_t{3}}}).get(), "plan")).code ==
        TSR_INVALID_ARGUMENT);
}

#include "serialize/plan_file.h"

#include <doctest/doctest.h>

#include <cstring>
#include <limits>

#include "serialize/envelope.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/plan_sample.h"
#include "tests/serialize/test_data.h"

using namespace tessera;
using namespace tessera::testing;

namespace {

// Plan has no == of its own.
void check_equal(const Plan& a, const Plan& b) {
  CHECK(a.graph_fingerprint == b.graph_fingerprint);
  CHECK(a.strategy == b.strategy);
  CHECK(a.stages == b.stages);
  CHECK(a.nodes == b.nodes);
  CHECK(a.stored == b.stored);
  CHECK(a.recompute == b.recompute);
  CHECK(a.keep_gathered == b.keep_gathered);
  CHECK(a.offload == b.offload);
  CHECK(a.zigzag == b.zigzag);
  CHECK(a.prefetch == b.prefetch);
  CHECK(a.schedule == b.schedule);
  CHECK(a.global_batch == b.global_batch);
  CHECK(a.micro_batches == b.micro_batches);
  CHECK(a.symbols == b.symbols);
  CHECK(a.estimate == b.estimate);
}

// The text of the sample with one piece replaced.
std::string edited(const std::string& from, const std::string& to) {
  std::string text = *plan_to_json(sample_plan());
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("plans_come_back_exactly_in_both_forms") {
  Plan infinite = sample_plan();
  infinite.estimate.step_time_s = std::numeric_limits<double>::infinity();
  infinite.estimate.compute_s = -0.0;
  infinite.estimate.communication_s = 5e-324;
  infinite.estimate.gap = 0.1 + 0.2;
  infinite.graph_fingerprint = ~uint64_t{0};
  for (const Plan& plan : {sample_plan(), larger_sample_plan(), owner_sample_plan(), infinite, Plan{}}) {
    ScratchFolder folder;
    for (const char* name : {"p.json", "p.plan"}) {
      const Status saved = save_plan(plan, folder / name);
      REQUIRE_MESSAGE(saved.ok(), saved.to_string());
      auto loaded = load_plan(folder / name);
      REQUIRE_MESSAGE(loaded.ok(), loaded.status().to_string());
      check_equal(plan, *loaded);
    }
    const bool same_text = *plan_to_json(*load_plan(folder / "p.plan")) == read_text_file(folder / "p.json");
    CHECK(same_text);
  }
}

TEST_CASE("a_plan_can_be_edited_by_hand") {
  auto plan = plan_from_json(edited("\"chunks\": 4", "\"chunks\": 2"));
  REQUIRE_MESSAGE(plan.ok(), plan.status().to_string());
  CHECK(plan->nodes[1].chunks == 2);
}

TEST_CASE("slips_in_an_edited_plan_are_named") {
  auto message = [](const std::string& from, const std::string& to) {
    auto plan = plan_from_json(edited(from, to));
    REQUIRE(!plan.ok());
    return std::string(plan.status().message());
  };
  CHECK(message("\"chunks\"", "\"chunk\"").find("nearest: chunks") != std::string::npos);
  CHECK(message("\"chunks\": 4", "\"chunks\": 0").find("0 chunks") != std::string::npos);
  CHECK(message("\"chunks\": 4", "\"chunks\": 99999999999").find("'chunks'") != std::string::npos);
  CHECK(message("\"chunks\": 4", "\"chunks\": 1e400").find("plan:") == 0);
  CHECK(message("\"carried\": [\n    \"dp\"", "\"carried\": [\n    \"pd\"").find("\"pd\"") !=
        std::string::npos);
  CHECK(message("\"host\"", "\"moon\"").find("device, host, file") != std::string::npos);
  CHECK(message("\"version\": 1", "\"version\": 2").find("newer") != std::string::npos);
  CHECK(message("tessera-plan", "other").find("tessera-plan") != std::string::npos);
  CHECK(message("\"mesh\": 1", "\"mesh\": 7").find("stage 7") != std::string::npos);
  CHECK(message("}", "").find("plan:") == 0);
}

TEST_CASE("only_plans_that_decide_more_ask_for_a_newer_reader") {
  const auto version = [](const Plan& plan) {
    Envelope envelope;
    std::memcpy(&envelope, plan_to_bytes(plan)->data(), sizeof envelope);
    return envelope.version;
  };
  CHECK(version(sample_plan()) == 1);
  CHECK(version(larger_sample_plan()) == 2);
  CHECK(version(owner_sample_plan()) == 3);
  Plan plan = sample_plan();
  plan.nodes[1].tier = Tier::kHost;
  CHECK(version(plan) == 2);
  CHECK(plan_to_json(sample_plan())->find("keep_gathered") == std::string::npos);
}

TEST_CASE("plans_that_make_no_sense_are_not_saved") {
  Plan plan = sample_plan();
  plan.nodes[0].stage = 5;
  CHECK(!plan_to_bytes(plan).ok());
  plan = sample_plan();
  plan.nodes[1].factor_axes[0].second = {9};
  CHECK(!plan_to_json(plan).ok());
  plan = larger_sample_plan();
  plan.zigzag = {9};
  CHECK(!plan_to_bytes(plan).ok());
  plan = owner_sample_plan();
  plan.nodes[1].factor_firsts[0].second = -1;
  CHECK(!plan_to_bytes(plan).ok());
  plan = larger_sample_plan();
  plan.prefetch = -1;
  CHECK(!plan_to_json(plan).ok());
  plan = larger_sample_plan();
  plan.nodes[1].chunk_factor = '\n';
  CHECK(!plan_to_bytes(plan).ok());
  plan = sample_plan();
  plan.stages[0].mesh.devices.pop_back();
  CHECK(!plan_to_bytes(plan).ok());
  plan = sample_plan();
  plan.estimate.gap = std::numeric_limits<double>::quiet_NaN();
  CHECK(!plan_to_bytes(plan).ok());
  plan = sample_plan();
  plan.strategy = "\xff";
  CHECK(!plan_to_json(plan).ok());
  CHECK(plan_to_bytes(plan).ok());
}

TEST_CASE("a_damaged_plan_file_is_refused") {
  auto bytes = plan_to_bytes(sample_plan());
  REQUIRE(bytes.ok());
  std::string text(reinterpret_cast<const char*>(bytes->data()), bytes->size());
  CHECK(plan_from_bytes(source_of(text)).ok());
  for (size_t at = 0; at < text.size(); ++at) {
    std::string damaged = text;
    damaged[at] = static_cast<char>(damaged[at] ^ 2);
    CHECK(!plan_from_bytes(source_of(damaged)).ok());
    CHECK(!plan_from_bytes(source_of(text.substr(0, at))).ok());
  }
}

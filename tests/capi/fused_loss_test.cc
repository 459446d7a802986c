// Option fused_loss through the C API: the same training in less memory, and what is refused.
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/preference_training.h"
#include "tests/capi/small_training.h"

using namespace capi_test;

namespace {

double predicted_arena(const Trainer& trainer) {
  const std::string report = text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
  const size_t at = report.find("\"predicted\"", report.find("\"arena_bytes\""));
  REQUIRE(at != std::string::npos);
  return std::stod(report.substr(report.find(':', at) + 1));
}

struct Trained {
  std::vector<double> losses;  // of the steps, then of an evaluation
  double arena_bytes = 0;      // predicted; -1 where more or less was touched
};

Trained trained(const char* model_text, const char* fused_loss) {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  const Model model = described(model_text);
  tsr_trainer* made = nullptr;
  ok(tsr_trainer_new(
      runtime.get(), model.get(), dataset.get(),
      options({{"devices", "cpu:1"}, {"batch", 24}, {"steps", 3}, {"fused_loss", std::string(fused_loss)}})
          .get(),
      &made));
  const Trainer trainer(made);
  Trained result;
  for (int i = 0; i < 3; ++i) result.losses.push_back(one_step(trainer));
  result.losses.push_back(evaluated(trainer));
  const std::string report = text([&](auto... out) { return tsr_trainer_report(trainer.get(), out...); });
  const auto number = [&](const char* key) {
    const size_t at = report.find(key, report.find("\"arena_bytes\""));
    REQUIRE(at != std::string::npos);
    return std::stod(report.substr(report.find(':', at) + 1));
  };
  result.arena_bytes = number("\"predicted\"");
  if (number("\"measured\"") != result.arena_bytes) result.arena_bytes = -1;
  return result;
}

// Wider than narrow products are: their large operand is not packed, and the workspace of that would hide the logits.
constexpr const char* kModel = "gpt2:L=1,C=72,H=2,V=4096,T=32";

}  // namespace

TEST_CASE("a fused loss trains and evaluates as logits do, in an arena smaller by most of them") {
  const Trained unfused = trained(kModel, "off"), fused = trained(kModel, "on");
  REQUIRE(unfused.losses.size() == fused.losses.size());
  for (size_t i = 0; i < unfused.losses.size(); ++i)
    CHECK(fused.losses[i] ==
          doctest::Approx(unfused.losses[i]).epsilon(1e-5));  // sums in another order, in f32
  REQUIRE(unfused.arena_bytes > 0);
  REQUIRE(fused.arena_bytes > 0);
  const double logits = 24.0 * 32 * 4096 * 4;
  // Both hold a chunk of 512 of the 768 rows, or all of them.
  CHECK(unfused.arena_bytes - fused.arena_bytes > logits / 4);
  // On the CPU it is taken where it is asked for.
  CHECK(trained(kModel, "auto").arena_bytes == unfused.arena_bytes);
}

TEST_CASE("losses of preferences and of steps in parts hold no logits where they are fused") {
  const Scratch scratch;
  const Runtime rt = runtime();
  PreferenceRun run{.path = write_pairs(scratch, "pairs.jsonl", 24), .model = kModel, .batch = 24};
  const double logits = 24.0 * 32 * 4096 * 4;
  const auto preferences = [&](const char* loss, const char* fused) {
    run.loss = loss;
    run.more = {{"fused_loss", std::string(fused)}};
    const Trainer trainer = preference_trainer(rt, run);
    preference_step(trainer);
    return predicted_arena(trainer);
  };
  const auto parts = [&](const char* fused) {
    tsr_trainer* made = nullptr;
    ok(tsr_trainer_new(rt.get(), described(kModel).get(), nullptr,
                       options({{"batch", 24},
                                {"seq", 32},
                                {"losses", std::string("ppo,cispo")},
                                {"fused_loss", std::string(fused)}})
                           .get(),
                       &made));
    return predicted_arena(Trainer(made));
  };
  // Both hold a chunk of 512 of the 768 rows, or all of them.
  for (const char* const loss : {"dpo", "orpo"})
    CHECK(preferences(loss, "off") - preferences(loss, "on") > logits / 4);
  CHECK(parts("off") - parts("on") > logits / 4);
}

TEST_CASE("logits that do not fit are left out, unless they are asked for") {
  const Runtime rt = runtime();
  const Dataset dataset = bytes_dataset();
  const auto made_with = [&](const char* fused) {
    tsr_trainer* made = nullptr;
    const Error error = take(
        tsr_trainer_new(rt.get(), described(kModel).get(), dataset.get(),
                        options({{"batch", 24},
                                 {"parallel", std::string("single")},
                                 {"fused_loss", std::string(fused)},
                                 {"memory_limit", static_cast<int64_t>(trained(kModel, "on").arena_bytes)}})
                            .get(),
                        &made));
    const Trainer owner(made);
    return error.code;
  };
  CHECK(made_with("off") == TSR_OUT_OF_MEMORY);
  CHECK(made_with("auto") == TSR_OK);
}

TEST_CASE("a fused loss of another head, and a choice that is none, are refused") {
  const Runtime runtime = capi_test::runtime();
  const Dataset dataset = bytes_dataset();
  tsr_trainer* made = nullptr;
  const Model biased = described("encoder:L=1,C=8,H=2,V=300,T=32");
  const Error other = take(tsr_trainer_new(runtime.get(), biased.get(), dataset.get(),
                                           options({{"fused_loss", "on"}}).get(), &made));
  CHECK(other.code == TSR_UNSUPPORTED);
  CHECK(other.message.find("the output head has a bias") != std::string::npos);
  const Model model = described(kModel);
  const Error unknown = take(tsr_trainer_new(runtime.get(), model.get(), dataset.get(),
                                             options({{"fused_loss", "maybe"}}).get(), &made));
  CHECK(unknown.code == TSR_INVALID_ARGUMENT);
  CHECK(unknown.message.find("auto") != std::string::npos);
}

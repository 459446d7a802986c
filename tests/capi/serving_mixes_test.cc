// Random mixes of requests on models with recurrent layers, or with shared keys and values: each request yields the same as alone,
// on any devices, with few pages, with drafts, and from saved sequences. Unused rows of state hold NaN. TESSERA_TEST_MIXES is the
// number of mixes for each model and layout: by default one for some of them, with TESSERA_TEST_FULL=1 16 for each.
#include <doctest/doctest.h>

#include <array>
#include <cstdlib>
#include <memory>
#include <string>

#include "tests/capi/hybrid_models.h"
#include "tests/capi/serving_mix.h"
#include "tests/full.h"

namespace tessera::serving_tests {

namespace {

constexpr size_t kRequests = 12, kLongest = 200;

// Variants of a mix's server.
enum class Kind : uint8_t { kUsual, kFewPages, kRepetitions, kDraftModel };
constexpr size_t kKinds = 4;

ServingSettings settings_for(const ServingLayout& layout, Kind kind) {
  ServingSettings settings = settings_of(layout, 8, 256);
  settings.step_tokens = 24;
  if (kind == Kind::kFewPages) settings.pages = 256 / 8;
  if (kind == Kind::kUsual || kind == Kind::kFewPages) return settings;
  settings.speculates = settings.always_speculates = true;
  if (kind == Kind::kDraftModel) settings.draft = new_model("llama:L=1,C=48,H=6,F=48,V=96,T=256", 3);  // wrong more often than not
  return settings;
}

// Fills all rows of state with NaN except snapshots. A save completes pending copies to snapshots.
void poison_unused(ServingCore& core, const capi_test::Scratch& folder) {
  REQUIRE(core.save_sequence(Tokens{1}, ~uint64_t{0}, folder / "none").ok());
  poison_rows(core, 0, core.settings().rows);
  poison_rows(core, core.settings().rows + core.settings().snapshots, count_rows(core));
}

// Events of all mixes: each kind must occur.
struct Totals {
  int64_t mixes = 0, preemptions = 0, reused = 0, drafted = 0, accepted = 0, restored = 0, resumed = 0;
};

// Servers of one model on one layout, created on first use.
class Servers {
 public:
  Servers(const char* model, const ServingLayout& layout) : model_(model), layout_(layout) {
    ServingSettings settings = settings_of({"cpu:1", "", {}}, 8, 256);
    settings.shares_prefixes = false;
    alone_ = new_core(new_runtime(), new_model(model), settings);
    other_ = new_core(new_runtime(), new_model(model), settings_of({"cpu:1", "", {}}, 4, 256));
  }

  void serve_mix(uint32_t number, Totals& totals) {
    const auto kind = static_cast<size_t>(number) % kKinds;
    auto& core = cores_[kind];
    const bool is_new = core == nullptr;
    if (is_new) core = new_core(new_runtime(), new_model(model_), settings_for(layout_, static_cast<Kind>(kind)));
    const Mix mix = make_mix(number + 77, *alone_, kRequests, kLongest);
    const capi_test::Scratch folder;
    poison_unused(*core, folder);
    if (is_new) poison_rows(*core, 0, count_rows(*core));
    const ServingCore::Counts before = core->counts();
    check_as_alone(mix, serve(*core, mix, folder));
    const ServingCore::Counts after = core->counts();
    ++totals.mixes;
    totals.preemptions += after.preemptions - before.preemptions;
    totals.reused += after.reused - before.reused;
    totals.drafted += after.drafted - before.drafted;
    totals.accepted += after.accepted - before.accepted;
    for (size_t i = 0; i < mix.saves.size(); ++i) go_on_elsewhere(folder / std::to_string(i).c_str(), number, totals);
  }

 private:
  // A server with pages of another size, on one device, goes on from the file.
  void go_on_elsewhere(const std::string& path, uint32_t seed, Totals& totals) {
    poison_unused(*other_, capi_test::Scratch());
    const auto file = SequenceFileReader::open(path);
    REQUIRE_MESSAGE(file.ok(), file.status().to_string());
    const auto restored = other_->restore_sequence(path);
    REQUIRE_MESSAGE(restored.ok(), restored.status().to_string());
    ServingRequest request = request_of(greedy(joined(restored->tokens, random_tokens(seed, 3, 96)), 8));
    const int64_t before = other_->counts().reused;
    CHECK(serve_texts(*other_, request) == serve_texts(*alone_, request));
    const int64_t reused = other_->counts().reused - before, cached = file->header().cached;
    CHECK(reused >= cached);  // other mixes may have left more
    totals.restored += cached;
    totals.resumed += cached > 0;
  }

  const char* const model_;
  const ServingLayout layout_;
  std::unique_ptr<ServingCore> alone_, other_;
  std::array<std::unique_ptr<ServingCore>, kKinds> cores_;
};

// Mixes for each model and layout; 0: one for some of them.
uint32_t mixes_of_each() {
  if (const char* const count = std::getenv("TESSERA_TEST_MIXES")) return static_cast<uint32_t>(std::atoi(count));
  return test::full() ? 16 : 0;
}

}  // namespace

TEST_CASE("serving state: random mixes yield each request as alone, on any devices, where pages run out, and with drafts") {
  constexpr const char* kModels[] = {kDelta, kConvolutions, kStates, kHalves, kSharedKeys};
  const ServingLayout layouts[] = {
      {"cpu:1", "", {}}, {"cpu:2", "tp=2", {}}, {"cpu:3", "tp=3", {}}, {"cpu:2", "pp=2", {}}};
  Totals totals;
  const uint32_t most = mixes_of_each();
  for (size_t model = 0; model < std::size(kModels); ++model)
    for (size_t layout = 0; layout < std::size(layouts); ++layout) {
      if (most == 0 && model != 0 && layout != model % std::size(layouts)) continue;
      CAPTURE(std::string(kModels[model]));
      CAPTURE(std::string(layouts[layout].parallel));
      Servers servers(kModels[model], layouts[layout]);
      const auto begin = static_cast<uint32_t>(model + layout);  // so that every kind of server has a mix
      for (uint32_t number = begin; number < begin + std::max<uint32_t>(1, most); ++number) {
        CAPTURE(number);
        servers.serve_mix(number, totals);
      }
    }
  MESSAGE(totals.mixes, " mixes: ", totals.preemptions, " preemptions, ", totals.reused, " tokens reused, ", totals.drafted,
          " drafted, ", totals.accepted, " accepted, ", totals.restored, " restored in ", totals.resumed, " sequences");
  CHECK(totals.preemptions > 0);
  CHECK(totals.reused > 0);
  CHECK(totals.drafted > totals.accepted);
  CHECK(totals.accepted > 0);
  CHECK(totals.resumed > 0);
}

}  // namespace tessera::serving_tests

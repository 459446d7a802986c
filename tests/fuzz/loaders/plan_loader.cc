#include "serialize/envelope.h"
#include "serialize/plan_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/gguf_builder.h"
#include "tests/serialize/plan_sample.h"

namespace tessera::fuzz {
namespace {

using testing::source_of;

class PlanLoader final : public Loader {
 public:
  PlanLoader() {
    auto bytes = plan_to_bytes(testing::sample_plan());
    TSR_CHECK(bytes.ok(), "the seed plan is not valid");
    seed_ = enveloped_seed({reinterpret_cast<const char*>(bytes->data()), bytes->size()}, "plan");
  }
  std::string_view name() const override { return "plan"; }
  Outcome run(Random& random) override {
    const std::string file = mutant_of(seed_, random);
    auto plan = plan_from_bytes(source_of(file));
    if (plan.ok() && !plan_to_json(*plan).ok() && !plan_to_bytes(*plan).ok()) {
      return {true, Status(StatusCode::kInternal, "an accepted plan cannot be written")};
    }
    return {past_envelope(file, kPlanMagic), plan.status()};
  }

 private:
  Seed seed_;
};

}  // namespace

std::unique_ptr<Loader> plan_loader() { return std::make_unique<PlanLoader>(); }

}  // namespace tessera::fuzz

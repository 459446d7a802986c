#include <nlohmann/json.hpp>

#include "serialize/plan_file.h"
#include "tests/fuzz/loaders.h"
#include "tests/fuzz/seeds.h"
#include "tests/serialize/plan_sample.h"

namespace tessera::fuzz {
namespace {

class PlanJsonLoader final : public Loader {
 public:
  PlanJsonLoader() : seed_(*plan_to_json(testing::sample_plan())) {}
  std::string_view name() const override { return "plan json"; }
  Outcome run(Random& random) override {
    std::string text = seed_;
    mutate_text(text, random);
    auto plan = plan_from_json(text);
    const bool is_json = nlohmann::json::accept(text);
    return {is_json, plan.status()};
  }

 private:
  std::string seed_;
};

}  // namespace

std::unique_ptr<Loader> plan_json_loader() { return std::make_unique<PlanJsonLoader>(); }

}  // namespace tessera::fuzz

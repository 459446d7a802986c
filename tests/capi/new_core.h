// Servers of small models.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "engine/serving/scheduler/serving_core.h"

namespace tessera::serving_tests {

inline constexpr const char* kServedModel = "llama:L=2,C=48,H=6,KV=3,F=48,V=96,T=256";
// Heads of 32, which blocks of 8 bits need.
inline constexpr const char* kBlockModel = "llama:L=2,C=96,H=3,KV=3,F=48,V=96,T=256";

inline std::shared_ptr<Runtime> new_runtime() {
  auto runtime = Runtime::create({});
  REQUIRE(runtime.ok());
  return *runtime;
}

inline std::shared_ptr<SharedModel> new_model(const char* description, int64_t seed = 0) {
  auto model = SharedModel::describe(description, {{"seed", seed}});
  REQUIRE(model.ok());
  return *model;
}

inline std::unique_ptr<ServingCore> new_core(const std::shared_ptr<Runtime>& runtime,
                                             const std::shared_ptr<SharedModel>& model,
                                             const ServingSettings& settings) {
  auto core = ServingCore::create(runtime, model, settings);
  REQUIRE_MESSAGE(core.ok(), core.status().to_string());
  return std::move(*core);
}

}  // namespace tessera::serving_tests

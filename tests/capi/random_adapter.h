// Models with random low-rank adapters.
#pragma once

#include <doctest/doctest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/model/adapters.h"
#include "engine/model/shared_model.h"

namespace tessera {

// An adapter whose second matrices are at random too.
inline std::shared_ptr<SharedModel> with_adapter(const std::shared_ptr<SharedModel>& base, uint32_t seed,
                                                 int64_t rank, Options options = {}) {
  const auto random = [&] { return (seed = seed * 1664525u + 1013904223u) >> 8; };
  options.insert_or_assign("rank", rank);
  options.try_emplace("alpha", 2.0 * static_cast<double>(rank));
  auto adapted = add_adapters(*base, options);
  REQUIRE_MESSAGE(adapted.ok(), adapted.status().to_string());
  for (const std::string& name : (*adapted)->parameter_names()) {
    if (!name.ends_with(".lora_a") && !name.ends_with(".lora_b")) continue;
    const auto value = (*adapted)->read(name);
    REQUIRE(value.ok());
    std::vector<float> numbers(value->as<float>().size());
    for (float& number : numbers) number = static_cast<float>(random()) / 8388608.0f * 0.3f - 0.3f;
    REQUIRE((*adapted)->write(name, HostTensor::copy_of<float>(value->type, numbers)).ok());
  }
  return *adapted;
}

}  // namespace tessera

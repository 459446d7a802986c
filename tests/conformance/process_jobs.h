// The training that is compared between one process and several.
#pragma once

#include "graph/base/text.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"

namespace tessera::parity {

inline Job process_job(const Form& form) {
  const int layers = form.needs == Needs::kManyLayers ? 8 : form.needs == Needs::kLayers ? 4 : 2;
  const bool has_experts = form.needs == Needs::kExperts;
  const std::string model = has_experts ? format("moe:L={},C=32,H=8,KV=4,F=28,E=4,K=2,V=61,T=16", layers)
                                        : format("gpt2:L={},C=32,H=8,V=61,T=16", layers);
  return {.model = model, .dtype = DType::kF32, .steps = 2, .clip_norm = 0.7, .dropout = has_experts ? 0 : 0.1};
}

}  // namespace tessera::parity

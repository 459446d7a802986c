// Small models with each kind of recurrent layer, and NaN for their rows of state.
#pragma once

#include <doctest/doctest.h>

#include <limits>
#include <set>
#include <string>
#include <vector>

#include "engine/serving/scheduler/serving_core.h"
#include "graph/transform/serving.h"

namespace tessera::serving_tests {

// Six heads of each kind, for two devices and three.
inline constexpr const char* kConvolutions = "lfm2:L=3,C=48,H=6,KV=6,F=48,V=96,T=256,recurrent=1|0|1,tied";
inline constexpr const char* kDelta = "qwen3_5:L=4,C=48,H=6,KV=6,F=48,HS=12,GS=6,VS=5,KS=4,V=96,T=256,attention_every=2";
inline constexpr const char* kStates =
    "granitehybrid:L=3,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=96,T=256,recurrent=1|1|0,conv_bias";
inline constexpr const char* kHalves =
    "nemotron_h:L=4,C=48,H=6,KV=6,F=48,HS=6,GS=6,VS=8,KS=4,V=96,T=256,halves=1|2|1|1,recurrent=1|0|0|1,conv_bias";
inline constexpr const char* kHybrids[] = {kDelta, kConvolutions, kStates, kHalves};

// Layers with windows, and layers that read the keys and values of earlier ones.
inline constexpr const char* kSharedKeys =
    "gemma4:L=4,C=48,H=6,KV=6,D=8,F=48,V=96,T=256,windows=7|0|7|0,head_sizes=8|16|8|16,ffn_widths=48|48|96|96,shared_kv=2,P=6,"
    "rope_rows=1,tied,rope_half";

// Fills rows [begin, end) of every state with NaN.
inline void poison_rows(ServingCore& core, int64_t begin, int64_t end) {
  const std::set<std::string> rows = row_states(*core.runner().record().entries.front().graph);
  for (const auto& [name, type] : core.runner().states()) {
    if (!rows.contains(name) || begin >= end) continue;
    TensorType some = type;
    some.shape.set(0, end - begin);
    const std::vector<float> poison(static_cast<size_t>(some.shape.elements()), std::numeric_limits<float>::quiet_NaN());
    const Status written = core.runner().session().write_rows(name, begin, HostTensor::copy_of<float>(some, poison));
    REQUIRE_MESSAGE(written.ok(), written.to_string());
  }
}

// The number of rows of state.
inline int64_t count_rows(ServingCore& core) {
  const std::set<std::string> rows = row_states(*core.runner().record().entries.front().graph);
  for (const auto& [name, type] : core.runner().states())
    if (rows.contains(name)) return type.shape[0];
  return 0;
}

}  // namespace tessera::serving_tests

// Keys of GGUF files that architectures without them must not have, unless without effect.
#pragma once

#include <string_view>

namespace tessera {

// NeutralKey: a key that scales or bounds something, and its values without effect: for architectures that do not read it.
struct NeutralKey {
  std::string_view key;
  double neutral, also_neutral;
};
constexpr NeutralKey kNeutralKeys[] = {
    {"logit_scale", 1, 0},
    {"embedding_scale", 1, 0},
    {"residual_scale", 1, 0},
    {"attn_logit_softcapping", 0, 0},
    {"final_logit_softcapping", 0, 0},
    {"attention.clamp_kqv", 0, 0},
    {"attention.max_alibi_bias", 0, 0},
    {"expert_weights_scale", 1, 0},
    {"rope.scaling.yarn_attn_factor", 1, -1},
    {"rope.scaling.yarn_ext_factor", 1, -1},
    {"rope.scaling.yarn_log_multiplier", 0, 0},
};

}  // namespace tessera

// Recurrent mixers: layers whose state has one size, however long the text.
#pragma once

#include <string>

#include "graph/models/decoder.h"

namespace tessera {

// x [B, T, C]: the layer's input, after its norm -> [B, T, C], what the layer adds. Parameters are named "<block>.<name>":
//   convolution: conv_b, conv_c, conv_x, conv [C, taps], conv_out
//   delta rule: scan_q, scan_k, scan_v, scan_z, scan_beta, scan_step; conv_q, conv_k, conv_v [., taps]; log_rate, step_bias [H];
//     scan_norm [V]; scan_out
//   state space: the same without scan_beta, with skip [H] and scan_norm [H * V]
TensorId recurrent_mixer(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x);

}  // namespace tessera

#include "graph/models/rotation.h"

namespace tessera {

Rotation::Rotation(LayerBuilder& b, const DecoderSizes& m, size_t layer, int64_t head_size,
                   TensorId positions, TensorId factors)
    : b_(b), positions_(positions) {
  if (!m.rope_layers.empty() && m.rope_layers[layer] == 0) return;
  const bool local = m.has_local_rotation(layer);
  theta_ = local ? m.window_theta : m.rope_theta;
  style_ = m.rope_half ? "half" : "interleaved";
  const bool scales = !local && (factors != kNoTensor || m.rope_magnitude != 1);
  is_plain_ = !scales && (m.R == 0 || m.R == head_size);
  if (is_plain_) return;
  std::vector<Attr> attrs = {{"theta", theta_}, {"head_size", m.R == 0 ? head_size : m.R}};
  if (scales) attrs.push_back({"magnitude", m.rope_magnitude});
  if (scales && m.rope_switch > 0) attrs.push_back({"switch_at", m.rope_switch});
  angles_ = scales && factors != kNoTensor ? b.op("rope_angles", {positions, factors}, std::move(attrs))
                                           : b.op("rope_angles", {positions}, std::move(attrs));
}

TensorId Rotation::operator()(TensorId x) {
  if (is_plain_) return b_.op("rope", {x, positions_}, {{"theta", theta_}, {"style", style_}});
  return angles_ == kNoTensor ? x : b_.op("rope_rotate", {x, angles_}, {{"style", style_}});
}

}  // namespace tessera

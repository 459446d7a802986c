#include "graph/models/layer_inputs.h"

#include <cmath>
#include <numbers>

#include "graph/base/text.h"
#include "graph/models/residual.h"

namespace tessera {

LayerInputs::LayerInputs(LayerBuilder& b, const DecoderSizes& m, TensorId tokens, TensorId x) : b_(b), m_(m) {
  if (m.P == 0) return;
  const int64_t width = m.L * m.P;
  const auto scaled = [&](TensorId of, double factor) { return b.op("scale", {of}, {{"factor", factor}}); };
  const TensorId table = b.parameter("layer_embedding", {m.PV, width});
  const TensorId own = scaled(b.op("embedding", {table, tokens}), std::sqrt(static_cast<double>(m.P)));
  TensorId projected = scaled(b.linear(x, "layer_projection", m.C, width), 1 / std::sqrt(static_cast<double>(m.C)));
  projected = b.op("rms_norm", {b.split_heads(projected, m.P), b.parameter("layer_projection_norm", {m.P})},
                   {{"eps", m.norm_eps}});
  vectors_ = scaled(b.op("add", {b.merge_heads(projected), own}), 1 / std::numbers::sqrt2);
}

TensorId LayerInputs::add(size_t layer, TensorId x) {
  if (m_.P == 0) return x;
  const std::string block = format("block.{}", layer);
  b_.scope(block + ".layer_input");
  const int64_t begin = static_cast<int64_t>(layer) * m_.P;
  const TensorId own = b_.op("slice", {vectors_}, {{"dim", int64_t{2}}, {"begin", begin}, {"end", begin + m_.P}});
  const TensorId gate = gated(b_, m_, b_.linear(x, block + ".layer_gate", m_.C, m_.P), own);
  const TensorId added = b_.linear(gate, block + ".layer_proj", m_.P, m_.C);
  return b_.op("add", {x, residual_norm(b_, m_, block + ".layer_norm", added)});
}

}  // namespace tessera

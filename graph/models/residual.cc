#include "graph/models/residual.h"

namespace tessera {

TensorId residual_norm(LayerBuilder& b, const DecoderSizes& m, const std::string& name, TensorId x) {
  return b.op("rms_norm", {x, b.parameter(name, {m.C})}, {{"eps", m.norm_eps}});
}

TensorId gated(LayerBuilder& b, const DecoderSizes& m, TensorId gate, TensorId up) {
  if (!m.gelu_gate) return b.op("swiglu", {gate, up});
  return b.op("mul", {b.op("gelu", {gate}, {{"approximate", std::string("tanh")}}), up});
}

TensorId add_residual(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId added) {
  if (m.residual_scale != 1) added = b.op("scale", {added}, {{"factor", m.residual_scale}});
  return b.op("add", {x, added});
}

}  // namespace tessera

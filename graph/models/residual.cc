#include "graph/models/residual.h"

namespace tessera {

TensorId residual_norm(LayerBuilder& b, const DecoderSizes& m, const std::string& name, TensorId x) {
  return b.op("rms_norm", {x, b.parameter(name, {m.C})}, {{"eps", m.norm_eps}});
}

TensorId gated(LayerBuilder& b, const DecoderSizes& m, TensorId gate, TensorId up) {
  if (!m.gelu_gate) return b.op("swiglu", {gate, up});
  return b.op("mul", {b.op("gelu", {gate}, {{"approximate", std::string("tanh")}}), up});
}

TensorId embed_tokens(LayerBuilder& b, const DecoderSizes& m, TensorId table, TensorId tokens) {
  const TensorId x = b.op("embedding", {table, tokens});
  return m.embedding_scale == 1 ? x : b.op("scale", {x}, {{"factor", m.embedding_scale}});
}

TensorId project_logits(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId head) {
  TensorId logits = b.project(x, head);
  if (m.logit_scale != 1) logits = b.op("scale", {logits}, {{"factor", m.logit_scale}});
  if (m.logit_softcap != 0) {  // c * tanh(logits / c)
    const TensorId bounded = b.op("tanh", {b.op("scale", {logits}, {{"factor", 1 / m.logit_softcap}})});
    logits = b.op("scale", {bounded}, {{"factor", m.logit_softcap}});
  }
  return logits;
}

TensorId add_residual(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId added) {
  if (m.residual_scale != 1) added = b.op("scale", {added}, {{"factor", m.residual_scale}});
  return b.op("add", {x, added});
}

}  // namespace tessera

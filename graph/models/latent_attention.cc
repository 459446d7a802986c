#include "graph/models/latent_attention.h"

#include "graph/models/rotation.h"

namespace tessera {
namespace {

constexpr int64_t kHeadDim = 3;  // of [B, T, H, D]

TensorId part(LayerBuilder& b, TensorId x, int64_t dim, int64_t begin, int64_t end) {
  return b.op("slice", {x}, {{"dim", dim}, {"begin", begin}, {"end", end}});
}

}  // namespace

QueryKeyValue latent_heads(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x,
                           TensorId positions, TensorId factors) {
  const LatentSizes& latent = m.latent;
  const std::string block = m.block(layer);
  const auto norm = [&](const std::string& name, TensorId of, int64_t width) {
    return b.op("rms_norm", {of, b.parameter(block + name, {width})}, {{"eps", latent.norm_eps}});
  };
  Rotation rotate(b, m, layer, m.R, positions, factors);
  const auto join_parts = [&](TensorId rotated, TensorId rest) {
    return b.op("concat", {rotated, rest}, {{"dim", kHeadDim}});
  };

  const int64_t D = latent.N + m.R;
  TensorId narrow = x;
  if (latent.QA > 0)
    narrow = norm(".q_a_norm", b.linear(x, block + ".q_a", m.C, latent.QA, m.qkv_bias), latent.QA);
  const TensorId q = b.split_heads(b.linear(narrow, block + (latent.QA > 0 ? ".q_b" : ".q"),
                                            latent.QA > 0 ? latent.QA : m.C, m.H * D),
                                   D);
  const TensorId q_rotated = rotate(part(b, q, kHeadDim, latent.N, D));

  const TensorId shared = b.linear(x, block + ".kv_a", m.C, latent.KA + m.R, m.qkv_bias);  // [B, T, KA + R]
  const TensorId k_one =
      rotate(b.split_heads(part(b, shared, 2, latent.KA, latent.KA + m.R), m.R));  // [B, T, 1, R]
  const TensorId k_rotated = b.op("broadcast", {b.merge_heads(k_one), q_rotated},
                                  {{"axes", std::vector<int64_t>{2}}});
  const TensorId c = norm(".kv_a_norm", part(b, shared, 2, 0, latent.KA), latent.KA);
  const TensorId kv = b.split_heads(
      b.linear(c, block + ".kv_b", latent.KA, m.H * (latent.N + latent.VD)), latent.N + latent.VD);
  return {join_parts(q_rotated, part(b, q, kHeadDim, 0, latent.N)),
          join_parts(k_rotated, part(b, kv, kHeadDim, 0, latent.N)),
          part(b, kv, kHeadDim, latent.N, latent.N + latent.VD)};
}

}  // namespace tessera

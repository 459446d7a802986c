#include "graph/models/decoder_attention.h"

#include <cmath>
#include <utility>
#include <vector>

#include "graph/models/latent_attention.h"
#include "graph/models/residual.h"
#include "graph/models/rotation.h"

namespace tessera {

TensorId DecoderAttention::normed(const std::string& name, TensorId of, int64_t width) {
  return b_.op("rms_norm", {of, b_.parameter(name, {width})}, {{"eps", m_.norm_eps}});
}

// keys [B, T, KV, D]: their projection.
TensorId DecoderAttention::values(size_t layer, TensorId x, TensorId keys) {
  const int64_t D = m_.head_size(layer);
  const bool are_keys = !m_.key_values.empty() && m_.key_values[layer] != 0;
  const TensorId v = are_keys ? keys
                              : b_.split_heads(b_.linear(x, m_.block(layer) + ".v", m_.C, m_.kv_count(layer) * D,
                                                         m_.qkv_bias),
                                               D);
  if (!m_.value_norm) return v;
  const auto width = static_cast<double>(D);
  return b_.op("l2_norm", {v}, {{"eps", width * m_.norm_eps}, {"scale", std::sqrt(width)}});
}

DecoderAttention::Heads DecoderAttention::heads(size_t layer, TensorId x) {
  const std::string block = m_.block(layer);
  const int64_t D = m_.head_size(layer), KV = m_.kv_count(layer);
  const auto part = [&](TensorId of, int64_t begin, int64_t end) {
    return b_.op("slice", {of}, {{"dim", int64_t{3}}, {"begin", begin}, {"end", end}});
  };
  const bool has_keys = m_.has_own_keys(layer);
  const int64_t width = m_.output_gate ? 2 * D : D;
  TensorId q = b_.linear(x, block + ".q", m_.C, m_.H * width, m_.qkv_bias), k = kNoTensor, v = kNoTensor, gate = kNoTensor;
  if (m_.wide_norm) q = normed(block + ".q_norm", q, m_.H * D);
  q = b_.split_heads(q, width);  // [B, T, H, D]
  if (m_.output_gate) {  // of each head the query, then the gate
    gate = part(q, D, 2 * D);
    q = part(q, 0, D);
  }
  if (has_keys) {
    k = b_.linear(x, block + ".k", m_.C, KV * D, m_.qkv_bias);
    if (m_.wide_norm) k = normed(block + ".k_norm", k, KV * D);
    k = b_.split_heads(k, D);
    v = values(layer, x, k);
  }
  if (m_.head_norm) q = normed(block + ".q_norm", q, D);
  if (m_.head_norm && has_keys) k = normed(block + ".k_norm", k, D);
  Rotation rotate(b_, m_, layer, D, positions_, factors_);
  q = rotate(q);
  if (m_.query_beta > 0)
    q = b_.op("position_scale", {q, positions_}, {{"beta", m_.query_beta}, {"context", m_.query_context}});
  if (has_keys) return {q, rotate(k), v, gate};
  const Heads& earlier = heads_[static_cast<size_t>(m_.kv_layers[layer])];
  return {q, earlier.k, earlier.v, gate};
}

TensorId DecoderAttention::add(size_t layer, TensorId x) {
  const std::string block = m_.block(layer);
  b_.scope(block + ".attention");
  const TensorId input = m_.input_norm ? residual_norm(b_, m_, block + m_.mixer_norm(), x) : x;
  const bool is_latent = m_.latent.KA > 0;
  Heads of;
  if (is_latent) {
    const auto [q, k, v] = latent_heads(b_, m_, layer, input, positions_, factors_);
    of = {q, k, v, kNoTensor};
  } else {
    of = heads(layer, input);
  }
  heads_.push_back(of);
  std::vector<Attr> attrs = {{"causal", int64_t{m_.causal ? 1 : 0}}};
  if (m_.attention_scale != 0) attrs.push_back({"scale", m_.attention_scale});
  if (m_.softcap != 0) attrs.push_back({"softcap", m_.softcap});
  if (!m_.windows.empty() && m_.windows[layer] > 0) attrs.push_back({"window", m_.windows[layer]});
  const std::vector<TensorId> results = b_.op_all("attention", {of.q, of.k, of.v}, std::move(attrs));
  if (results.empty()) return kNoTensor;
  TensorId mixed = results[0];
  if (m_.sinks) mixed = b_.op("attention_sink", {mixed, results[1], b_.parameter(block + ".sinks", {m_.H})});
  if (of.gate != kNoTensor) mixed = b_.op("mul", {mixed, b_.op("sigmoid", {of.gate})});
  const int64_t width = is_latent ? m_.latent.VD : m_.head_size(layer);
  TensorId added = b_.linear(b_.merge_heads(mixed), block + ".o", m_.H * width, m_.C, m_.o_bias);
  if (m_.branch_norm) added = residual_norm(b_, m_, block + ".attention_branch_norm", added);
  return add_residual(b_, m_, x, added);
}

}  // namespace tessera

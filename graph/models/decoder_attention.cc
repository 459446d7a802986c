#include "graph/models/decoder_attention.h"

#include <utility>
#include <vector>

#include "graph/base/text.h"
#include "graph/models/latent_attention.h"
#include "graph/models/residual.h"
#include "graph/models/rotation.h"

namespace tessera {

DecoderAttention::Heads DecoderAttention::heads(size_t layer, TensorId x) {
  const std::string block = format("block.{}", layer);
  const int64_t D = m_.head_size(layer), KV = m_.kv_count(layer);
  const auto normed = [&](const char* name, TensorId of, int64_t width) {
    return b_.op("rms_norm", {of, b_.parameter(block + name, {width})}, {{"eps", m_.norm_eps}});
  };
  const auto project = [&](const char* name, int64_t count) {
    return b_.linear(x, block + name, m_.C, count * D, m_.qkv_bias);
  };
  const auto part = [&](TensorId of, int64_t begin, int64_t end) {
    return b_.op("slice", {of}, {{"dim", int64_t{3}}, {"begin", begin}, {"end", end}});
  };
  TensorId q = project(".q", m_.output_gate ? 2 * m_.H : m_.H), k, v, gate = kNoTensor;
  if (m_.wide_norm) q = normed(".q_norm", q, m_.H * D);
  q = b_.split_heads(q, m_.output_gate ? 2 * D : D);  // [B, T, H, D]
  if (m_.output_gate) {  // of each head the query, then the gate
    gate = part(q, D, 2 * D);
    q = part(q, 0, D);
  }
  k = project(".k", KV);
  if (m_.wide_norm) k = normed(".k_norm", k, KV * D);
  k = b_.split_heads(k, D);
  v = b_.split_heads(project(".v", KV), D);
  if (m_.head_norm) {
    q = normed(".q_norm", q, D);
    k = normed(".k_norm", k, D);
  }
  Rotation rotate(b_, m_, layer, D, positions_, factors_);
  q = rotate(q);
  if (m_.query_beta > 0)
    q = b_.op("position_scale", {q, positions_}, {{"beta", m_.query_beta}, {"context", m_.query_context}});
  return {q, rotate(k), v, gate};
}

TensorId DecoderAttention::add(size_t layer, TensorId x) {
  const std::string block = format("block.{}", layer);
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

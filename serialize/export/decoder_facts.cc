#include "serialize/export/decoder_facts.h"

#include <cmath>
#include <utility>
#include <vector>

#include "graph/base/text.h"

namespace tessera {
namespace {

using Facts = std::vector<std::pair<std::string, double>>;

double number(int64_t value) { return static_cast<double>(value); }

void add_experts(const ExpertSizes& e, Facts& facts) {
  facts.insert(facts.end(), {{"E", number(e.E)},
                             {"K", number(e.K)},
                             {"FS", number(e.FS)},
                             {"groups", number(e.groups)},
                             {"groups_used", number(e.groups_used)},
                             {"group_best", e.groups > 1 ? number(e.group_best) : 0},
                             {"expert_scale", e.scale},
                             {"gate_limit", e.limit},
                             {"M", number(e.M)},
                             {"normalize", e.normalize},
                             {"shared_gate", e.shared_gate},
                             {"expert_sigmoid", e.sigmoid},
                             {"selection_bias", e.selection_bias},
                             {"biases of experts", e.bias}});
}

void add_recurrent(const RecurrentSizes& r, Facts& facts) {
  facts.insert(facts.end(), {{"taps", number(r.taps)},
                             {"HS", number(r.H)},
                             {"VS", number(r.V)},
                             {"GS", number(r.G)},
                             {"KS", number(r.K)},
                             {"conv_bias", r.conv_bias},
                             {"least_step", r.least_step},
                             {"most_step", r.most_step}});
  for (size_t i = 0; i < r.layers.size(); ++i) facts.emplace_back(format("recurrent of layer {}", i), number(r.layers[i]));
}

Facts facts_of(const DecoderSizes& m) {
  const LatentSizes& latent = m.latent;
  Facts facts = {{"L", number(m.L)},
                 {"C", number(m.C)},
                 {"H", number(m.H)},
                 {"F", number(m.F)},
                 {"V", number(m.V)},
                 {"T", number(m.T)},
                 {"R", number(m.R)},
                 {"KA", number(latent.KA)},
                 {"QA", number(latent.QA)},
                 {"N", number(latent.N)},
                 {"VD", number(latent.VD)},
                 {"latent_norm_eps", latent.KA > 0 ? latent.norm_eps : 0},
                 {"rope_rows", number(m.rope_rows)},
                 {"rope_switch", number(m.rope_switch)},
                 {"norm_eps", m.norm_eps},
                 {"rope_theta", m.rope_theta},
                 {"rope_magnitude", m.rope_magnitude},
                 {"attention_scale", m.attention_scale == 0 ? 1 / std::sqrt(number(m.D)) : m.attention_scale},
                 {"query_beta", m.query_beta},
                 {"query_context", m.query_beta > 0 ? number(m.query_context) : 0},
                 {"softcap", m.softcap},
                 {"logit_softcap", m.logit_softcap},
                 {"embedding_scale", m.embedding_scale},
                 {"residual_scale", m.residual_scale},
                 {"logit_scale", m.logit_scale},
                 {"tied", m.tied && m.head && m.classes == 0},
                 {"head", m.head || m.classes > 0},
                 {"classes", number(m.classes)},
                 {"causal", m.causal},
                 {"dense_bias", m.dense.bias},
                 {"qkv_bias", m.qkv_bias},
                 {"o_bias", m.o_bias},
                 {"mlp_bias", m.mlp_bias},
                 {"wide_norm", m.wide_norm},
                 {"output_gate", m.output_gate},
                 {"squared_relu", m.squared_relu},
                 {"P", number(m.P)},
                 {"PV", m.P > 0 ? number(m.PV) : 0},
                 {"layer_scale", m.layer_scale},
                 {"sinks", m.sinks}};
  if (latent.KA > 0) facts.emplace_back("rope_half", m.rope_half);  // otherwise rows of q and k are reordered
  for (size_t i = 0; i < m.dense.widths.size(); ++i) facts.emplace_back(format("width {} of dense", i), number(m.dense.widths[i]));
  add_experts(m.experts, facts);
  add_recurrent(m.recurrent, facts);
  for (size_t i = 0; i < m.halves.size(); ++i) facts.emplace_back(format("halves of layer {}", i), number(m.halves[i]));
  bool has_windows = false;
  for (size_t i = 0; i < static_cast<size_t>(m.L); ++i) {
    // A window of the whole context equals none, unless it selects the rotation.
    const int64_t given = m.windows.empty() ? 0 : m.windows[i];
    const bool is_none = given >= m.T && m.window_theta == 0;
    has_windows = has_windows || (given > 0 && !is_none);
    const auto each = [&](std::string_view what, int64_t value) { facts.emplace_back(format("{} of layer {}", what, i), number(value)); };
    each("head size", m.head_size(i)), each("kv_layers", m.kv_layers.empty() ? static_cast<int64_t>(i) : m.kv_layers[i]);
    if (m.has_own_keys(i)) each("KV", m.kv_count(i)), each("key_values", !m.key_values.empty() && m.key_values[i] != 0);
    facts.emplace_back(format("windows of layer {}", i), is_none ? 0 : number(given));
    facts.emplace_back(format("rope_layers of layer {}", i), m.rope_layers.empty() || m.rope_layers[i] != 0);
    if (m.has_feed_forward(i) && !m.has_experts(i)) each("width", m.ffn_width(i));
    if (m.experts.E > 0) each("expert_layers", m.has_experts(i));
  }
  facts.emplace_back("window_theta", has_windows ? m.window_theta : 0);
  return facts;
}

}  // namespace

std::string first_difference(const DecoderSizes& a, const DecoderSizes& b, double tolerance) {
  const Facts ours = facts_of(a), theirs = facts_of(b);
  for (size_t i = 0; i < ours.size(); ++i) {
    const auto& [name, value] = ours[i];
    const bool same = i < theirs.size() && theirs[i].first == name &&
                      std::abs(value - theirs[i].second) <= tolerance * std::abs(value);
    if (!same) return format("{} = {}", name, value);
  }
  return {};
}

}  // namespace tessera

#include "graph/models/decoder.h"

#include <algorithm>

#include "graph/base/text.h"
#include "graph/models/decoder_attention.h"
#include "graph/models/draft_block.h"
#include "graph/models/feed_forward.h"
#include "graph/models/layer_inputs.h"
#include "graph/models/recurrent_mixers.h"
#include "graph/models/residual.h"

namespace tessera {

DecoderSizes read_decoder_sizes(ConfigReader& config) {
  DecoderSizes m;
  m.L = config.size("L");
  m.C = config.size("C");
  m.H = config.size("H");
  m.KV = config.size("KV", m.H);
  m.D = config.size("D", m.C % m.H == 0 ? m.C / m.H : 0);
  m.F = config.size("F");
  m.V = config.size("V");
  m.T = config.size("T");
  m.norm_eps = config.real("norm_eps", 1e-5);
  m.rope_theta = config.real("rope_theta", 10000);
  m.tied = config.flag("tied", false);
  m.rope_half = config.flag("rope_half", false);
  m.head = config.flag("head", true);
  m.causal = config.flag("causal", true);
  m.classes = config.size("classes", 0);
  m.dense = read_dense_modules(config);
  config.check(m.dense.widths.empty() || (!m.head && m.classes == 0),
               format("dense with head = {} and classes = {}, wanted hidden states alone: head = 0", m.head ? 1 : 0, m.classes));
  config.check(m.H % m.KV == 0, format("H = {} query heads is not a multiple of KV = {}", m.H, m.KV));
  config.check(
      m.D > 0,
      format("C = {} channels do not divide into H = {} heads; wanted that, or a head size D", m.C, m.H));
  return m;
}

void read_layer_sizes(ConfigReader& config, DecoderSizes& m) {
  m.head_sizes = config.list("head_sizes", m.L, 2);
  m.kv_heads = config.list("kv_heads", m.L, 1);
  m.ffn_widths = config.list("ffn_widths", m.L, 1);
  for (const int64_t D : m.head_sizes)
    config.check(D % 2 == 0, format("head_sizes has {}, which is odd; rotary positions turn pairs", D));
  for (const int64_t KV : m.kv_heads)
    config.check(KV > 0 && m.H % KV == 0, format("H = {} query heads is not a multiple of {} in kv_heads", m.H, KV));
  config.check(m.head_sizes.empty() || m.rope_half,
               "head_sizes without rope_half; rows of heads of several sizes keep their order in files: wanted rope_half");
}

void read_shared_keys(ConfigReader& config, DecoderSizes& m) {
  m.key_values = config.list("key_values", m.L, 0);
  const int64_t shared = config.size("shared_kv", 0), first = m.L - shared;
  config.check(shared < m.L, format("shared_kv = {} layers read keys of others, wanted fewer than L = {}", shared, m.L));
  const bool is_of_layers = m.windows.empty() || std::ssize(m.windows) == m.L;  // else an error already
  if (shared == 0 || first < 1 || !is_of_layers) return;
  const auto kind = [&](int64_t layer) { return !m.windows.empty() && m.windows[static_cast<size_t>(layer)] > 0; };
  for (int64_t i = 0; i < m.L; ++i) {
    int64_t from = std::min(i, first - 1);
    while (i >= first && from >= 0 && kind(from) != kind(i)) --from;
    config.check(from >= 0, format("shared_kv = {}: no layer before has keys and values for layer {}, {} a window", shared, i,
                                   kind(i) ? "with" : "without"));
    m.kv_layers.push_back(i < first ? i : std::max<int64_t>(from, 0));
  }
}

void read_layer_inputs(ConfigReader& config, DecoderSizes& m) {
  m.P = config.size("P", 0);
  m.PV = config.size("PV", m.V);
  m.layer_scale = config.flag("layer_scale", true);
}

void read_biases(ConfigReader& config, DecoderSizes& m) {
  m.qkv_bias = config.flag("qkv_bias", false);
  m.o_bias = config.flag("o_bias", false);
}

void read_query_temperature(ConfigReader& config, DecoderSizes& m) {
  m.query_beta = config.real("query_beta", 0);
  m.query_context = config.size("query_context", 0);
  config.check(m.query_beta >= 0 && (m.query_beta == 0 || m.query_context > 0),
               format("query_beta is {} and query_context {}, wanted none, or both above 0", m.query_beta, m.query_context));
}

void read_windows(ConfigReader& config, DecoderSizes& m, size_t every) {
  const int64_t window = config.size("window", 0);
  m.windows = config.list("windows", m.L, 0);
  config.check(window == 0 || m.windows.empty(), "window and windows are given, wanted one of them");
  if (window == 0) return;
  m.windows.assign(static_cast<size_t>(m.L), window);
  for (size_t i = every; every > 0 && i <= m.windows.size(); i += every) m.windows[i - 1] = 0;
}

void read_rope_scaling(ConfigReader& config, DecoderSizes& m) {
  m.R = m.head_sizes.empty() ? config.size("R", m.D) : 0;
  m.rope_rows = config.size("rope_rows", 0);
  m.rope_switch = config.size("rope_switch", 0);
  m.rope_magnitude = config.real("rope_magnitude", 1);
  config.check(m.R % 2 == 0 && m.R <= m.D,
               format("R = {} of a head of D = {} are rotated, wanted an even number of them: rotary positions turn pairs", m.R, m.D));
  config.check(m.rope_rows <= 2 && (m.rope_rows == 2) == (m.rope_switch > 0),
               format("rope_rows is {} and rope_switch {}, wanted 1 row without a switch or 2 with one",
                      m.rope_rows, m.rope_switch));
}

void read_experts(ConfigReader& config, DecoderSizes& m, bool normalize, double capacity, double aux) {
  ExpertSizes& e = m.experts;
  e.E = config.size("E");
  e.K = config.size("K", 2);
  e.normalize = config.flag("normalize", normalize);
  e.capacity = config.real("capacity", capacity);
  e.aux = config.real("aux", aux);
  e.z = config.real("z", 0);
  config.check(e.K <= e.E, format("K = {} experts of a token are more than E = {}", e.K, e.E));
  config.check(e.aux >= 0 && e.z >= 0, format("aux is {} and z is {}, wanted 0 or more", e.aux, e.z));
}

void read_expert_groups(ConfigReader& config, ExpertSizes& experts) {
  experts.groups = config.size("groups", 1);
  experts.groups_used = config.size("groups_used", experts.groups);
  if (experts.groups_used != experts.groups) return;
  config.check(experts.E % std::max<int64_t>(experts.groups, 1) == 0,
               format("groups = {} does not divide E = {}", experts.groups, experts.E));
  experts.groups = experts.groups_used = 1;
}

void read_recurrent(ConfigReader& config, DecoderSizes& m, Recurrent kind, int64_t every, int64_t taps) {
  RecurrentSizes& r = m.recurrent;
  r.kind = kind;
  every = config.size("attention_every", every);
  r.layers = config.list("recurrent", m.L, 0);
  if (r.layers.empty())
    for (int64_t i = 1; i <= m.L; ++i) r.layers.push_back(i % every != 0);
  r.taps = config.size("taps", taps);
  r.conv_bias = config.flag("conv_bias", false);
}

void read_halves(ConfigReader& config, DecoderSizes& m) {
  constexpr int64_t kMost = 2;
  m.halves = config.list("halves", m.L, 0);
  for (const int64_t half : m.halves)
    config.check(half <= kMost, format("halves has {}, wanted 0 for both, 1 for the mixer alone, 2 for the feed-forward half alone", half));
}

void read_states(ConfigReader& config, DecoderSizes& m) {
  RecurrentSizes& r = m.recurrent;
  r.H = config.size("HS");
  r.V = config.size("VS");
  r.G = config.size("GS", r.H);
  r.K = config.size("KS", r.V);
  r.turned = config.flag("turned", false);
  r.least_step = config.real("least_step", 0);
  r.most_step = config.real("most_step", 0);
  config.check(r.H % r.G == 0, format("HS = {} heads of values are not a multiple of GS = {} heads of keys", r.H, r.G));
}

void read_dense_layers(ConfigReader& config, DecoderSizes& m) {
  m.experts.layers = config.list("expert_layers", m.L, 0);
  m.experts.FD = config.size("FD", m.F);
}

void read_draft_block(ConfigReader& config, DecoderSizes& m) {
  m.MTP = config.size("MTP", 0);
  m.draft_tables = config.flag("draft_tables", false);
  config.check(m.MTP >= 0 && m.MTP <= 1, format("MTP is {}, wanted 0 or 1 draft blocks", m.MTP));
  config.check(m.MTP == 0 || (m.head && m.classes == 0), format("MTP is {} without a head over the vocabulary, wanted 0", m.MTP));
  config.check(m.MTP > 0 || !m.draft_tables, "draft_tables without a draft block, wanted MTP = 1");
}

std::string DecoderSizes::block(size_t layer) const {
  return layer < static_cast<size_t>(L) ? format("block.{}", layer) : "draft";
}

namespace {

// The recurrent half of a block, added to x.
TensorId add_recurrence(LayerBuilder& b, const DecoderSizes& m, size_t layer, TensorId x) {
  const std::string block = m.block(layer);
  b.scope(block + ".recurrence");
  const TensorId input = m.input_norm ? residual_norm(b, m, block + m.mixer_norm(), x) : x;
  TensorId added = recurrent_mixer(b, m, block, input);
  if (m.branch_norm) added = residual_norm(b, m, block + ".attention_branch_norm", added);
  return add_residual(b, m, x, added);
}

// The final norm, and the projection onto the vocabulary or onto classes, if any. Returns the weight of the projection onto the
// vocabulary.
TensorId output(LayerBuilder& b, const DecoderSizes& m, TensorId x, TensorId table) {
  b.scope("output");
  x = residual_norm(b, m, "final_norm", x);
  if (m.classes > 0 || !m.head) {
    if (m.classes > 0) b.output("class_logits", b.linear(x, "classifier", m.C, m.classes));
    b.output("hidden", add_dense_modules(b, m.dense, x, m.C));
    return kNoTensor;
  }
  const TensorId head = m.tied ? table : b.parameter("output", {m.V, m.C});
  b.output("logits", project_logits(b, m, x, head));
  return head;
}

}  // namespace

size_t DecoderSizes::window_layer() const {
  const auto found = std::ranges::find_if(windows, [](int64_t window) { return window > 0; });
  return found == windows.end() ? 0 : static_cast<size_t>(found - windows.begin());
}

size_t DecoderSizes::full_layer() const {
  const auto found = std::ranges::find(windows, 0);
  return found == windows.end() ? 0 : static_cast<size_t>(found - windows.begin());
}

Result<DecoderSizes> decoder_sizes(const ModelConfig& config, ReadDecoderSizes read) {
  LayerBuilder b;
  ConfigReader reader(config, b);
  DecoderSizes sizes = read(reader);
  if (!reader.done()) return b.finish().status();
  return sizes;
}

Result<Graph> build_decoder(const ModelConfig& config, ReadDecoderSizes read) {
  TSR_ASSIGN_OR_RETURN(const DecoderSizes m, decoder_sizes(config, read));
  LayerBuilder b;
  const int64_t B = b.symbol("B"), T = b.symbol("T", m.T);
  const TensorId tokens = b.input("tokens", DType::kI32, {B, T});
  const TensorId positions = b.input("positions", DType::kI32, {B, T});

  AuxiliaryLoss auxiliary(b, m.experts);
  b.scope("embedding");
  const TensorId table = b.parameter("token_embedding", {m.V, m.C});
  TensorId factors = kNoTensor;
  if (m.rope_rows > 0) factors = b.constant("rope_factors", {m.rope_rows, m.scaled_pairs()});
  TensorId x = embed_tokens(b, m, table, tokens);
  LayerInputs inputs(b, m, tokens, x);
  DecoderAttention attention(b, m, positions, factors);
  for (size_t layer = 0; layer < static_cast<size_t>(m.L); ++layer) {
    if (m.has_mixer(layer)) x = m.is_recurrent(layer) ? add_recurrence(b, m, layer, x) : attention.add(layer, x);
    if (m.has_feed_forward(layer)) x = add_feed_forward(b, m, layer, x, auxiliary);
    x = inputs.add(layer, x);
    if (m.layer_scale) x = b.op("scale_channels", {x, b.constant(format("block.{}.layer_scale", layer), {1})});
  }
  const TensorId head = output(b, m, x, table);
  if (auxiliary.sum() != kNoTensor) b.output("aux_loss", auxiliary.sum());
  if (m.MTP > 0) add_draft_block(b, m, {tokens, positions, factors, table, head});
  return b.finish();
}

namespace {

constexpr NameRule kHuggingface[] = {
    {"token_embedding", "model.embed_tokens.weight"},
    {"final_norm", "model.norm.weight"},
    {"output", "lm_head.weight"},
    {"classifier", "score.weight"},
    {"block.#.attention_norm", "model.layers.#.input_layernorm.weight"},
    {"block.#.q", "model.layers.#.self_attn.q_proj.weight"},
    {"block.#.k", "model.layers.#.self_attn.k_proj.weight"},
    {"block.#.v", "model.layers.#.self_attn.v_proj.weight"},
    {"block.#.o", "model.layers.#.self_attn.o_proj.weight"},
    {"block.#.q.bias", "model.layers.#.self_attn.q_proj.bias"},
    {"block.#.k.bias", "model.layers.#.self_attn.k_proj.bias"},
    {"block.#.v.bias", "model.layers.#.self_attn.v_proj.bias"},
    {"block.#.o.bias", "model.layers.#.self_attn.o_proj.bias"},
    {"block.#.q_norm", "model.layers.#.self_attn.q_norm.weight"},
    {"block.#.k_norm", "model.layers.#.self_attn.k_norm.weight"},
    {"block.#.ffn_norm", "model.layers.#.post_attention_layernorm.weight"},
    {"block.#.gate", "model.layers.#.mlp.gate_proj.weight"},
    {"block.#.up", "model.layers.#.mlp.up_proj.weight"},
    {"block.#.down", "model.layers.#.mlp.down_proj.weight"},
    {"block.#.gate.bias", "model.layers.#.mlp.gate_proj.bias"},
    {"block.#.up.bias", "model.layers.#.mlp.up_proj.bias"},
    {"block.#.down.bias", "model.layers.#.mlp.down_proj.bias"},
    {"block.#.router", "model.layers.#.mlp.gate.weight"},
    {"block.#.experts.gate", "model.layers.#.mlp.experts.@.gate_proj.weight"},
    {"block.#.experts.up", "model.layers.#.mlp.experts.@.up_proj.weight"},
    {"block.#.experts.down", "model.layers.#.mlp.experts.@.down_proj.weight"},
    {"draft.projection", "model.layers.#.eh_proj.weight"},
    {"draft.embedding_norm", "model.layers.#.enorm.weight"},
    {"draft.hidden_norm", "model.layers.#.hnorm.weight"},
    {"draft.final_norm", "model.layers.#.shared_head.norm.weight"},
    {"draft.token_embedding", "model.layers.#.embed_tokens.weight"},
    {"draft.output", "model.layers.#.shared_head.head.weight"},
};

constexpr NameRule kGguf[] = {
    {"token_embedding", "token_embd.weight"},
    {"final_norm", "output_norm.weight"},
    {"output", "output.weight"},
    {"rope_factors", "rope_freqs.weight"},
    {"block.#.attention_norm", "blk.#.attn_norm.weight"},
    {"block.#.q", "blk.#.attn_q.weight"},
    {"block.#.k", "blk.#.attn_k.weight"},
    {"block.#.v", "blk.#.attn_v.weight"},
    {"block.#.o", "blk.#.attn_output.weight"},
    {"block.#.q.bias", "blk.#.attn_q.bias"},
    {"block.#.k.bias", "blk.#.attn_k.bias"},
    {"block.#.v.bias", "blk.#.attn_v.bias"},
    {"block.#.o.bias", "blk.#.attn_output.bias"},
    {"block.#.q_norm", "blk.#.attn_q_norm.weight"},
    {"block.#.k_norm", "blk.#.attn_k_norm.weight"},
    {"block.#.attention_branch_norm", "blk.#.post_attention_norm.weight"},
    {"block.#.ffn_norm", "blk.#.ffn_norm.weight"},
    {"block.#.ffn_branch_norm", "blk.#.post_ffw_norm.weight"},
    {"block.#.gate", "blk.#.ffn_gate.weight"},
    {"block.#.up", "blk.#.ffn_up.weight"},
    {"block.#.down", "blk.#.ffn_down.weight"},
    {"block.#.gate.bias", "blk.#.ffn_gate.bias"},
    {"block.#.up.bias", "blk.#.ffn_up.bias"},
    {"block.#.down.bias", "blk.#.ffn_down.bias"},
    {"block.#.shared.gate", "blk.#.ffn_gate_shexp.weight"},
    {"block.#.shared.up", "blk.#.ffn_up_shexp.weight"},
    {"block.#.shared.down", "blk.#.ffn_down_shexp.weight"},
    {"block.#.router", "blk.#.ffn_gate_inp.weight"},
    {"block.#.experts.gate", "blk.#.ffn_gate_exps.weight"},
    {"block.#.experts.up", "blk.#.ffn_up_exps.weight"},
    {"block.#.experts.down", "blk.#.ffn_down_exps.weight"},
    {"draft.projection", "blk.#.nextn.eh_proj.weight"},
    {"draft.embedding_norm", "blk.#.nextn.enorm.weight"},
    {"draft.hidden_norm", "blk.#.nextn.hnorm.weight"},
    {"draft.final_norm", "blk.#.nextn.shared_head_norm.weight"},
    {"draft.token_embedding", "blk.#.nextn.embed_tokens.weight"},
    {"draft.output", "blk.#.nextn.shared_head_head.weight"},
};

constexpr NameRule kStateSpaceGguf[] = {
    {"block.#.scan_z", "blk.#.ssm_in.weight"},
    {"block.#.scan_v", "blk.#.ssm_in.weight"},
    {"block.#.scan_k", "blk.#.ssm_in.weight"},
    {"block.#.scan_q", "blk.#.ssm_in.weight"},
    {"block.#.scan_step", "blk.#.ssm_in.weight"},
    {"block.#.conv_v", "blk.#.ssm_conv1d.weight"},
    {"block.#.conv_k", "blk.#.ssm_conv1d.weight"},
    {"block.#.conv_q", "blk.#.ssm_conv1d.weight"},
    {"block.#.conv_v.bias", "blk.#.ssm_conv1d.bias"},
    {"block.#.conv_k.bias", "blk.#.ssm_conv1d.bias"},
    {"block.#.conv_q.bias", "blk.#.ssm_conv1d.bias"},
    {"block.#.log_rate", "blk.#.ssm_a", ValueChange::kLogNegatedColumn},
    {"block.#.step_bias", "blk.#.ssm_dt.bias"},
    {"block.#.skip", "blk.#.ssm_d", ValueChange::kColumn},
    {"block.#.scan_norm", "blk.#.ssm_norm.weight", ValueChange::kGroups},
    {"block.#.scan_out", "blk.#.ssm_out.weight"},
};

}  // namespace

constexpr std::span<const NameRule> kDecoderHuggingfaceNames = kHuggingface, kDecoderGgufNames = kGguf;
constexpr std::span<const NameRule> kStateSpaceGgufNames = kStateSpaceGguf;

}  // namespace tessera

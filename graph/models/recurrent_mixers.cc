#include "graph/models/recurrent_mixers.h"

#include <cmath>

namespace tessera {
namespace {

class Mixer {
 public:
  Mixer(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x)
      : b_(b), m_(m), r_(m.recurrent), block_(block + "."), x_(x) {}

  // y = c * conv(b * x), of three products.
  TensorId convolution() {
    const auto product = [&](TensorId x, const char* name) { return b_.linear(x, block_ + name, m_.C, m_.C, r_.conv_bias); };
    const TensorId before = product(x_, "conv_b"), after = product(x_, "conv_c"), values = product(x_, "conv_x");
    const TensorId mixed = convolved(b_.op("mul", {before, values}), "conv", m_.C, "");
    return product(b_.op("mul", {after, mixed}), "conv_out");
  }

  // Yang et al., equation 10, with the output's norm and gate of section 3.4.
  TensorId delta_rule() {
    const auto [q, k, v] = queries_keys_values();
    const TensorId unit_q = b_.op("l2_norm", {q}, {{"eps", kUnitEps}}), unit_k = b_.op("l2_norm", {k}, {{"eps", kUnitEps}});
    const TensorId beta = b_.op("sigmoid", {product("scan_beta", r_.H)});
    const TensorId decay = steps()[1];
    const TensorId read = scan(unit_q, unit_k, v, decay, beta, "delta", 1 / std::sqrt(static_cast<double>(r_.K)));
    const TensorId normed = b_.op("rms_norm", {read, parameter("scan_norm", {r_.V})}, {{"eps", m_.norm_eps}});
    const TensorId gate = b_.split_heads(product("scan_z", r_.H * r_.V), r_.V);
    return out("scan_out", b_.merge_heads(b_.op("swiglu", {gate, normed})), r_.H * r_.V);
  }

  // Dao and Gu, section 6: a state of each head, decayed by one number a token, and a skip connection.
  TensorId state_space() {
    const auto [q, k, v] = queries_keys_values();
    const std::vector<TensorId> step = steps();
    const TensorId read = b_.merge_heads(scan(q, k, v, step[1], step[0], "add", 1));
    const TensorId skipped = b_.op("scale_channels", {b_.merge_heads(v), parameter("skip", {r_.H})});
    const TensorId gated = b_.op("swiglu", {product("scan_z", r_.H * r_.V), b_.op("add", {read, skipped})});
    return out("scan_out", group_norm(gated), r_.H * r_.V);
  }

 private:
  static constexpr double kUnitEps = 1e-6;  // of every implementation of the delta rule

  struct Operands {
    TensorId q, k, v;  // [B, T, G, K] twice, [B, T, H, V]
  };

  TensorId parameter(const char* name, std::initializer_list<int64_t> shape) { return b_.parameter(block_ + name, shape); }
  TensorId product(const char* name, int64_t n) { return b_.linear(x_, block_ + name, m_.C, n); }
  TensorId out(const char* name, TensorId y, int64_t k) { return b_.linear(y, block_ + name, k, m_.C); }

  TensorId convolved(TensorId x, const std::string& name, int64_t channels, const char* activation) {
    const TensorId taps = b_.parameter(block_ + name, {channels, r_.taps});
    std::vector<Attr> attrs = {{"activation", std::string(activation)}};
    if (!r_.conv_bias) return b_.op("causal_conv", {x, taps}, std::move(attrs));
    attrs.push_back({"bias", int64_t{1}});
    return b_.op("causal_conv", {x, taps, b_.parameter(block_ + name + ".bias", {channels})}, std::move(attrs));
  }

  Operands queries_keys_values() {
    const auto made = [&](const char* name, const char* conv, int64_t heads, int64_t width) {
      return b_.split_heads(convolved(product(name, heads * width), conv, heads * width, "silu"), width);
    };
    const TensorId q = made("scan_q", "conv_q", r_.G, r_.K), k = made("scan_k", "conv_k", r_.G, r_.K);
    return {q, k, made("scan_v", "conv_v", r_.H, r_.V)};
  }

  // Step and log of the decay of each head and token, f32.
  std::vector<TensorId> steps() {
    std::vector<Attr> attrs;
    if (r_.least_step > 0) attrs.push_back({"least", r_.least_step});
    if (r_.most_step > 0) attrs.push_back({"most", r_.most_step});
    const TensorId raw = product("scan_step", r_.H), rate = parameter("log_rate", {r_.H}), bias = parameter("step_bias", {r_.H});
    std::vector<TensorId> results = b_.op_all("step_decay", {raw, rate, bias}, std::move(attrs));
    return results.empty() ? std::vector<TensorId>(2, kNoTensor) : results;
  }

  TensorId scan(TensorId q, TensorId k, TensorId v, TensorId decay, TensorId beta, const char* rule, double scale) {
    if (r_.turned) q = in_turn(q), k = in_turn(k);
    return b_.op("state_scan", {q, k, v, decay, beta}, {{"rule", std::string(rule)}, {"scale", scale}});
  }

  // The G heads of keys again and again, one for each head of values.
  TensorId in_turn(TensorId heads) {
    if (r_.H == r_.G || r_.G == 1) return heads;
    const std::vector<TensorId> turns(static_cast<size_t>(r_.H / r_.G), heads);
    return b_.op("concat", turns, {{"dim", int64_t{2}}});
  }

  // An rms_norm of each of G groups of the channels.
  TensorId group_norm(TensorId x) {
    const int64_t width = r_.H * r_.V / r_.G;
    const TensorId weight = parameter("scan_norm", {r_.H * r_.V});
    if (r_.G == 1) return b_.op("rms_norm", {x, weight}, {{"eps", m_.norm_eps}});
    const auto count = static_cast<double>(width);
    const TensorId unit = b_.op("l2_norm", {b_.split_heads(x, width)}, {{"eps", m_.norm_eps * count}, {"scale", std::sqrt(count)}});
    return b_.op("scale_channels", {b_.merge_heads(unit), weight});
  }

  LayerBuilder& b_;
  const DecoderSizes& m_;
  const RecurrentSizes& r_;
  const std::string block_;
  const TensorId x_;
};

}  // namespace

TensorId recurrent_mixer(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x) {
  Mixer mixer(b, m, block, x);
  switch (m.recurrent.kind) {
    case Recurrent::kNone: break;
    case Recurrent::kConvolution: return mixer.convolution();
    case Recurrent::kDelta: return mixer.delta_rule();
    case Recurrent::kStateSpace: return mixer.state_space();
  }
  b.fail(Status(StatusCode::kInternal, "a recurrent layer without a kind"));
  return kNoTensor;
}

}  // namespace tessera

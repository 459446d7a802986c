// A Llama in f64 from its parameters alone, token by token and without a cache: what the library's
// transcripts are held against where no published one is at hand.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "c_api.h"

namespace capi_test {

struct LlamaShape {
  int64_t L, C, H, KV, F, V;
  bool tied, rope_half;
};

class NaiveLlama {
 public:
  NaiveLlama(const Model& model, const LlamaShape& shape) : n_(shape) {
    size_t count = 0;
    ok(tsr_model_parameter_count(model.get(), &count));
    for (size_t i = 0; i < count; ++i) {
      const std::string name =
          short_text([&](auto... out) { return tsr_model_parameter_name(model.get(), i, out...); });
      tsr_tensor* read = nullptr;
      ok(tsr_model_read(model.get(), name.c_str(), &read));
      const Tensor tensor(read);
      REQUIRE(tsr_tensor_dtype(read) == TSR_F32);
      const auto* values = static_cast<const float*>(tsr_tensor_data(read));
      parameters_[name].assign(values, values + tsr_tensor_bytes(read) / sizeof(float));
    }
  }

  // Logits of the next token after these.
  std::vector<double> logits(const std::vector<int32_t>& tokens) const {
    std::vector<Row> x;
    for (const int32_t token : tokens) {
      const Row& table = parameters_.at("token_embedding");
      x.emplace_back(table.begin() + token * n_.C, table.begin() + (token + 1) * n_.C);
    }
    for (int64_t layer = 0; layer < n_.L; ++layer) {
      const std::string block = "block." + std::to_string(layer) + ".";
      attend(x, block);
      for (Row& row : x) {
        const Row normed = norm(row, block + "ffn_norm");
        Row gate = gemv(normed, block + "gate");
        const Row up = gemv(normed, block + "up");
        for (size_t i = 0; i < gate.size(); ++i) gate[i] = gate[i] / (1 + std::exp(-gate[i])) * up[i];
        add(row, gemv(gate, block + "down"));
      }
    }
    return gemv(norm(x.back(), "final_norm"), n_.tied ? "token_embedding" : "output");
  }

 private:
  using Row = std::vector<double>;

  static void add(Row& to, const Row& other) {
    for (size_t i = 0; i < to.size(); ++i) to[i] += other[i];
  }
  Row norm(const Row& x, const std::string& weight) const {
    double squares = 0;
    for (const double value : x) squares += value * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    Row y = parameters_.at(weight);
    for (size_t i = 0; i < y.size(); ++i) y[i] *= x[i] * scale;
    return y;
  }
  Row gemv(const Row& x, const std::string& weight) const {  // stored [outputs, inputs]
    const Row& w = parameters_.at(weight);
    Row y(w.size() / x.size());
    for (size_t o = 0; o < y.size(); ++o)
      for (size_t i = 0; i < x.size(); ++i) y[o] += w[o * x.size() + i] * x[i];
    return y;
  }
  void turn(Row& x, size_t position) const {
    const auto D = static_cast<size_t>(n_.C / n_.H);
    for (size_t head = 0; head < x.size() / D; ++head)
      for (size_t i = 0; i < D / 2; ++i) {
        const double angle = static_cast<double>(position) *
                             std::pow(10000.0, -2.0 * static_cast<double>(i) / static_cast<double>(D));
        double& u = x[head * D + (n_.rope_half ? i : 2 * i)];
        double& v = x[head * D + (n_.rope_half ? i + D / 2 : 2 * i + 1)];
        const double before = u;
        u = before * std::cos(angle) - v * std::sin(angle);
        v = before * std::sin(angle) + v * std::cos(angle);
      }
  }
  void attend(std::vector<Row>& x, const std::string& block) const {
    const auto D = static_cast<size_t>(n_.C / n_.H), group = static_cast<size_t>(n_.H / n_.KV);
    std::vector<Row> q, k, v;
    for (size_t t = 0; t < x.size(); ++t) {
      const Row normed = norm(x[t], block + "attention_norm");
      q.push_back(gemv(normed, block + "q"));
      k.push_back(gemv(normed, block + "k"));
      v.push_back(gemv(normed, block + "v"));
      turn(q[t], t);
      turn(k[t], t);
    }
    for (size_t t = 0; t < x.size(); ++t) {
      Row mixed(q[t].size());
      for (size_t head = 0; head < static_cast<size_t>(n_.H); ++head) {
        const size_t from = head / group * D;
        Row share(t + 1);
        double total = 0;
        for (size_t s = 0; s <= t; ++s) {
          double score = 0;
          for (size_t i = 0; i < D; ++i) score += q[t][head * D + i] * k[s][from + i];
          total += share[s] = std::exp(score / std::sqrt(static_cast<double>(D)));
        }
        for (size_t s = 0; s <= t; ++s)
          for (size_t i = 0; i < D; ++i) mixed[head * D + i] += share[s] / total * v[s][from + i];
      }
      add(x[t], gemv(mixed, block + "o"));
    }
  }

  LlamaShape n_;
  std::map<std::string, Row> parameters_;
};

}  // namespace capi_test

// Trainers of steps in parts, and rows for them.
#pragma once

#include <cstring>
#include <string>
#include <vector>

#include "tests/capi/c_api.h"
#include "tests/capi/fed_training.h"
#include "tests/capi/small_training.h"

namespace capi_test::step_parts {

inline constexpr const char* kModel = "llama:L=2,C=32,H=4,KV=2,F=48,V=64,T=16";
inline constexpr int64_t kSeq = 12;
inline constexpr const char* kAllLosses = "cross_entropy,importance_sampling,ppo,cispo,dro,gspo,gradient";

// Rows of tokens, whose labels are the tokens that follow; some are without weight.
struct Rows {
  int64_t rows = 0;
  std::vector<int32_t> tokens, labels;
  std::vector<float> sampler, advantages;

  explicit Rows(int64_t count, uint32_t seed = 3) : rows(count) {
    const auto size = static_cast<size_t>(count * kSeq);
    const std::vector<float> drawn = noise(size, seed), other = noise(size, seed + 9);
    for (size_t i = 0; i < size; ++i) tokens.push_back(static_cast<int32_t>((drawn[i] + 1) * 31.9f));
    for (size_t i = 0; i < size; ++i)
      labels.push_back((i + 1) % kSeq == 0 || i % 7 == 3 ? -1 : tokens[i + 1]);
    for (size_t i = 0; i < size; ++i) {
      sampler.push_back(-4.2f + 0.6f * other[i]);
      advantages.push_back(drawn[i] * 1.3f);
    }
  }
  size_t counted() const {
    size_t count = 0;
    for (const int32_t label : labels) count += label >= 0;
    return count;
  }
  Rows part(int64_t first, int64_t count) const {
    Rows made(0);
    made.rows = count;
    const auto cut = [&](const auto& from, auto& to) {
      to.assign(from.begin() + first * kSeq, from.begin() + (first + count) * kSeq);
    };
    cut(tokens, made.tokens);
    cut(labels, made.labels);
    cut(sampler, made.sampler);
    cut(advantages, made.advantages);
    return made;
  }
  tsr_batch batch() const {
    tsr_batch made{};
    made.struct_size = sizeof made;
    made.rows = rows;
    made.seq = kSeq;
    made.tokens = tokens.data();
    made.labels = labels.data();
    made.sampler_logprobs = sampler.data();
    made.advantages = advantages.data();
    return made;
  }
};

inline Tensor tensor_i32(std::vector<int64_t> dims, const std::vector<int32_t>& values) {
  tsr_tensor* made = nullptr;
  ok(tsr_tensor_new(TSR_I32, static_cast<int32_t>(dims.size()), dims.data(), &made));
  std::memcpy(tsr_tensor_writable(made), values.data(), values.size() * sizeof(int32_t));
  return Tensor(made);
}

inline constexpr const char* kTied =
    "gpt2:L=2,C=32,H=4,V=64,T=16";  // its table is read at both ends of a pipeline

struct Layout {
  std::string devices = "cpu:1", parallel;
  const char* model = kModel;
};

class Parts {
 public:
  explicit Parts(const Layout& layout = {}, int64_t batch = 4, const char* losses = "cross_entropy",
                 const char* precision = "f32", const char* fused_loss = "off",
                 const std::vector<Setting>& optimizer = {{"lr", 0.01}}) {
    tsr_trainer* made = nullptr;
    std::vector<Setting> words = {{"devices", layout.devices},
                                  {"parallel", layout.parallel},
                                  {"batch", batch},
                                  {"seq", kSeq},
                                  {"warmup", int64_t{0}},
                                  {"precision", std::string(precision)},
                                  {"fused_loss", std::string(fused_loss)},
                                  {"losses", std::string(losses)}};
    words.insert(words.end(), optimizer.begin(), optimizer.end());
    ok(tsr_trainer_new(runtime_.get(), described(layout.model).get(), nullptr, options(words).get(), &made));
    trainer.reset(made);
  }
  double accumulate(const Rows& rows, const char* loss, double scale,
                    std::vector<float>* logprobs = nullptr) {
    const tsr_batch batch = rows.batch();
    double value = 0;
    std::vector<float> out(rows.tokens.size());
    size_t count = 0;
    ok(tsr_trainer_forward_backward(trainer.get(), &batch, loss, options({{"scale", scale}}).get(), &value,
                                    out.data(), out.size(), &count));
    CHECK(count == out.size());
    if (logprobs != nullptr) *logprobs = out;
    return value;
  }
  void backward(const Rows& rows, const std::vector<float>& gradients) {
    const tsr_batch batch = rows.batch();
    ok(tsr_trainer_backward(trainer.get(), &batch, gradients.data(), gradients.size()));
  }
  std::vector<float> forward(const Rows& rows) {
    const tsr_batch batch = rows.batch();
    std::vector<float> out(rows.tokens.size());
    size_t count = 0;
    ok(tsr_trainer_forward(trainer.get(), &batch, out.data(), out.size(), &count));
    CHECK(count == out.size());
    return out;
  }
  tsr_step update(const std::vector<Setting>& settings = {}) {
    tsr_step step{};
    step.struct_size = sizeof step;
    ok(tsr_trainer_optimizer_step(trainer.get(), options(settings).get(), &step));
    return step;
  }
  // Leaves out what was added up: an update with the rate 0.
  void drop() { ok(tsr_trainer_optimizer_step(trainer.get(), options({{"lr", 0.0}}).get(), nullptr)); }
  tsr_step whole(const Rows& rows) {
    ok(tsr_trainer_feed(trainer.get(), "tokens", tensor_i32({rows.rows, kSeq}, rows.tokens).get()));
    ok(tsr_trainer_feed(trainer.get(), "labels", tensor_i32({rows.rows, kSeq}, rows.labels).get()));
    return step(trainer);
  }
  std::vector<float> read(const char* name) const { return parameter(trainer, name); }

  Trainer trainer;

 private:
  Runtime runtime_ = runtime();
};

inline constexpr const char* kSome[] = {"block.0.q", "block.1.down", "token_embedding"};

inline double scale_of(const Rows& rows) { return 1.0 / static_cast<double>(rows.counted()); }

}  // namespace capi_test::step_parts

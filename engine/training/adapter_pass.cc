#include "engine/training/adapter_pass.h"

#include <algorithm>
#include <cmath>

#include "text/json.h"

namespace tessera {

namespace {

template <class T>
std::vector<T> copied(const T* from, size_t count) {
  return from == nullptr ? std::vector<T>() : std::vector<T>(from, from + count);
}

// Appends a row of `width` tokens: those of `from`, or `otherwise(t)` where it is absent, then padding(t).
template <class T, class Otherwise, class Padding>
void append_row(std::vector<T>& to, const std::vector<T>& from, int64_t row, int64_t seq, int64_t width,
                const Otherwise& otherwise, const Padding& padding) {
  for (int64_t t = 0; t < width; ++t)
    to.push_back(t >= seq ? padding(t) : from.empty() ? otherwise(t) : from[static_cast<size_t>(row * seq + t)]);
}

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

}  // namespace

std::string to_json(const FinishedPass& pass) {
  constexpr const char* kKinds[] = {"forward", "forward_backward", "backward", "update"};
  Json json = {{"pass", pass.pass}, {"adapter", pass.adapter}, {"kind", kKinds[static_cast<size_t>(pass.kind)]}};
  if (!pass.status.ok()) {
    json["error"] = {{"code", static_cast<int32_t>(pass.status.code())}, {"message", pass.status.message()}};
    return dump(json);
  }
  if (pass.kind != PassKind::kForward) json["loss"] = number(pass.loss);
  if (pass.kind == PassKind::kUpdate)
    json.update({{"step", pass.step}, {"grad_norm", number(pass.grad_norm)}, {"lr", number(pass.lr)}});
  return dump(json);
}

QueuedBatch QueuedBatch::copy_of(const TokenBatch& batch, std::span<const float> gradients) {
  const size_t count = elements(batch);
  QueuedBatch made{.rows = batch.rows, .seq = batch.seq};
  made.tokens = copied(batch.tokens, count);
  made.labels = copied(batch.labels, count);
  made.positions = copied(batch.positions, count);
  made.segments = copied(batch.segments, count);
  made.weights = copied(batch.weights, count);
  made.sampler_logprobs = copied(batch.sampler_logprobs, count);
  made.advantages = copied(batch.advantages, count);
  made.gradients.assign(gradients.begin(), gradients.end());
  return made;
}

void SharedRows::add(const AdapterPass& pass, int64_t count, const RowAdapter& adapter) {
  const QueuedBatch& batch = pass.batch;
  has_weights_ = has_weights_ || !batch.weights.empty();
  has_ratio_ = has_ratio_ || !batch.sampler_logprobs.empty();
  has_segments_ = has_segments_ || !batch.segments.empty();
  const auto always = [](auto value) { return [value](int64_t) { return value; }; };
  const auto position = [](int64_t t) { return static_cast<int32_t>(t); };
  for (int64_t row = pass.done; row < pass.done + count; ++row) {
    const auto append = [&](auto& to, const auto& from, const auto& otherwise, const auto& padding) {
      append_row(to, from, row, batch.seq, seq_, otherwise, padding);
    };
    append(tokens_, batch.tokens, always(int32_t{0}), always(int32_t{0}));
    append(labels_, batch.labels, always(int32_t{-1}), always(int32_t{-1}));
    append(positions_, batch.positions, position, position);
    append(segments_, batch.segments, always(int32_t{0}), always(int32_t{-1}));
    append(weights_, batch.weights, always(1.0f), always(0.0f));
    append(sampler_logprobs_, batch.sampler_logprobs, always(0.0f), always(0.0f));
    append(advantages_, batch.advantages, always(0.0f), always(0.0f));
    append(gradients_, batch.gradients, always(0.0f), always(0.0f));
    slots_.push_back(adapter.slot);
    factors_.push_back(static_cast<float>(adapter.factor));
    scales_.push_back(static_cast<float>(pass.scale));
    seeds_.push_back(static_cast<int64_t>(pass.seed));
    numbers_.push_back(row);
    rates_.push_back(adapter.dropout);
    ++rows_;
  }
}

TokenBatch SharedRows::view() const {
  TokenBatch batch{.rows = rows_, .seq = seq_, .tokens = tokens_.data(), .labels = labels_.data()};
  batch.positions = positions_.data();
  if (has_segments_) batch.segments = segments_.data();
  if (has_weights_) batch.weights = weights_.data();
  if (has_ratio_) batch.sampler_logprobs = sampler_logprobs_.data(), batch.advantages = advantages_.data();
  batch.slots = slots_.data();
  batch.factors = factors_.data();
  batch.row_scales = scales_.data();
  batch.dropout_seeds = seeds_.data();
  batch.row_numbers = numbers_.data();
  batch.dropout_rates = rates_.data();
  return batch;
}

}  // namespace tessera

#include "engine/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>

#include "engine/sampling/approximate_draw.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

using sampling::Largest, sampling::Logits;

// Excludes the tokens whose mask bit is 0.
void apply_mask(std::span<const uint32_t> mask, std::span<float> logits) {
  typedef float Floats __attribute__((vector_size(16)));
  typedef uint32_t Bits __attribute__((vector_size(16)));
  constexpr size_t kLanes = 4, kWord = 32;
  constexpr Floats kForbidden = {-INFINITY, -INFINITY, -INFINITY, -INFINITY};
  constexpr Bits kLane = {1, 2, 4, 8};
  const size_t words = logits.size() / kWord;
  for (size_t word = 0; word < words; ++word) {
    if (mask[word] == ~uint32_t{0}) continue;
    for (size_t at = 0; at < kWord; at += kLanes) {
      float* values = logits.data() + word * kWord + at;
      Floats four;
      std::memcpy(&four, values, sizeof four);
      four = (kLane & (mask[word] >> at)) != 0 ? four : kForbidden;
      std::memcpy(values, &four, sizeof four);
    }
  }
  for (size_t token = words * kWord; token < logits.size(); ++token)
    if ((mask[words] >> (token % kWord) & 1) == 0) logits[token] = -INFINITY;
}

double as_f32(double value) { return double(static_cast<float>(value)); }

Status check_ids(std::span<const int32_t> ids, std::string_view what, int64_t vocabulary) {
  for (const int32_t token : ids)
    if (token < 0 || token >= vocabulary)
      return Status(StatusCode::kInvalidArgument,
                    format("sampler: {} has token id {}, the model has {} tokens", what, token, vocabulary));
  return {};
}

}  // namespace

Result<Sampler> Sampler::create(std::shared_ptr<const SamplingSettings> settings, const SamplerText& text) {
  TSR_RETURN_IF_ERROR(check_tokens(*settings, text.vocabulary));
  TSR_RETURN_IF_ERROR(check_ids(text.prompt, "the prompt", text.vocabulary));
  TSR_RETURN_IF_ERROR(check_ids(text.end_ids, "the list of end tokens", text.vocabulary));
  Sampler sampler;
  sampler.vocabulary_ = text.vocabulary;
  sampler.seed_ = text.seed;
  sampler.sequence_ = text.sequence;
  std::vector<int32_t>& ends = sampler.end_ids_;
  if (!settings->ignore_eos) ends.assign(text.end_ids.begin(), text.end_ids.end());
  for (const int64_t token : settings->stop_ids)
    if (token < text.vocabulary) ends.push_back(static_cast<int32_t>(token));
  std::ranges::sort(ends);
  ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
  sampler.has_penalties_ = settings->repetition_penalty != 1 || settings->presence_penalty != 0 ||
                           settings->frequency_penalty != 0;
  sampler.counts_ = TokenCounts(settings->penalty_last);
  if (sampler.has_penalties_)
    for (const int32_t token : text.prompt) sampler.counts_.add(token, false);
  sampler.settings_ = std::move(settings);
  return sampler;
}

void Sampler::accept(int32_t token) {
  ++generated_;
  if (has_penalties_) counts_.add(token, true);
}

bool Sampler::ends(int32_t token) const { return std::ranges::binary_search(end_ids_, token); }

void Sampler::penalize(std::span<float> logits) const {
  const SamplingSettings& settings = *settings_;
  for (const TokenCounts::Count& count : counts_.counts()) {
    float& logit = logits[static_cast<size_t>(count.token)];
    double value = double(logit);
    if (settings.repetition_penalty != 1)
      value = value > 0 ? value / settings.repetition_penalty : value * settings.repetition_penalty;
    if (count.generated > 0)
      value -= settings.frequency_penalty * count.generated + settings.presence_penalty;
    logit = static_cast<float>(value);
  }
}

Result<Sampler::Row> Sampler::adjust(std::span<const float> logits, std::span<const uint32_t> mask,
                                     SamplerScratch& scratch) const {
  if (std::ssize(logits) != vocabulary_)
    return Status(StatusCode::kInvalidArgument,
                  format("sampler: found a row of {} logits, wanted {}", logits.size(), vocabulary_));
  if (!mask.empty() && std::ssize(mask) != (vocabulary_ + 31) / 32)
    return Status(StatusCode::kInvalidArgument,
                  format("sampler: found a mask of {} words, wanted {} for {} tokens", mask.size(),
                         (vocabulary_ + 31) / 32, vocabulary_));
  const bool holds_ends = may_end_ && generated_ < settings_->min_tokens && !end_ids_.empty();
  const auto row_of = [](std::span<const float> values) -> Row {
    const Logits<float> all{values.data(), std::ssize(values)};
    return {all, sampling::find_largest(all, 0, all.V)};
  };
  const auto checked = [&mask](const Row& row) -> Result<Row> {
    if (row.logits.V > 0 && row.top.logit != sampling::kNoLogit) return row;
    if (mask.empty())
      return Status(StatusCode::kInternal, "sampler: no token is left to draw: the logits are not finite");
    return Status(
        StatusCode::kFailedPrecondition,
        "sampler: no token is left to draw: the mask forbids all whose logit is a number above -inf");
  };
  if (!has_penalties_ && settings_->logit_bias.empty() && mask.empty() && !holds_ends)
    return checked(row_of(logits));

  scratch.logits.assign(logits.begin(), logits.end());
  const std::span<float> adjusted(scratch.logits);
  if (has_penalties_) penalize(adjusted);
  for (const TokenBias& bias : settings_->logit_bias) adjusted[static_cast<size_t>(bias.token)] += bias.bias;
  if (!mask.empty()) apply_mask(mask, adjusted);
  if (!holds_ends) return checked(row_of(adjusted));
  std::vector<float> held;
  for (const int32_t token : end_ids_)
    held.push_back(std::exchange(adjusted[static_cast<size_t>(token)], -INFINITY));
  if (const Row without = row_of(adjusted); without.top.logit != sampling::kNoLogit) return without;
  for (size_t i = 0; i < held.size(); ++i) adjusted[static_cast<size_t>(end_ids_[i])] = held[i];
  return checked(row_of(adjusted));
}

CandidateRules Sampler::rules() const {
  return {.temperature = as_f32(settings_->temperature),
          .top_k = settings_->top_k,
          .typical_p = settings_->typical_p,
          .top_p = as_f32(settings_->top_p),
          .min_p = settings_->min_p};
}

Result<int32_t> Sampler::draw(std::span<const float> logits, std::span<const uint32_t> mask, int64_t position,
                              SamplerScratch& scratch) const {
  TSR_ASSIGN_OR_RETURN(const Row row, adjust(logits, mask, scratch));
  const CandidateRules rules = this->rules();
  if (!(rules.temperature > 0) || std::isinf(row.top.logit)) return row.top.token;
  const double uniform = sampling::draw_uniform(seed_, static_cast<uint64_t>(position), sequence_);
  if (rules.typical_p < 1 || rules.min_p > 0) {
    const TokenCandidates candidates(row.logits, row.top.logit, rules, scratch.candidates);
    return candidates.tokens()[static_cast<size_t>(sampling::draw_of_all(candidates.weights(), uniform))];
  }
  const sampling::Choice choice{rules.temperature, rules.top_k, rules.top_p, uniform};
  CandidateSpace& space = scratch.candidates;
  space.grow_to(row.logits.V);
  if (!choice.is_cut(row.logits.V)) {
    const std::optional<int32_t> certain = draw_approximately(row.logits, row.top.logit, choice, space.blocks);
    if (certain) return *certain;
    for (int64_t token = 0; token < row.logits.V; ++token)
      space.weights[static_cast<size_t>(token)] =
          sampling::weight_of(row.top.logit - row.logits.logit(token), rules.temperature);
  }
  return sampling::draw_token(row.logits, row.top, choice, space.weights.data(), space.order.data());
}

}  // namespace tessera

#include "serialize/run_log/run_series.h"

#include <algorithm>
#include <charconv>

#include "serialize/run_log/line_file.h"

namespace tessera {

namespace {

constexpr size_t kMostBuckets = 2000;  // more than a chart's width in pixels
constexpr size_t kMostLines = 2000;    // evaluations, values and checkpoints
constexpr size_t kMostSamples = 40;

// The value to seven digits, the precision of f32, which shortens pages.
double seven_digits(double value) {
  char text[40];
  const auto [end, error] = std::to_chars(text, text + sizeof text, value, std::chars_format::general, 7);
  double back = value;
  if (error == std::errc()) std::from_chars(text, end, back);
  return back;
}

// Keeps every other element, and the last.
void thin_out(std::vector<Json>& lines) {
  std::vector<Json> half;
  for (size_t i = 1 - lines.size() % 2; i < lines.size(); i += 2) half.push_back(std::move(lines[i]));
  lines = std::move(half);
}

}  // namespace

void RunSeries::Bucket::merge(const Bucket& next) {
  last = next.last, lr = next.lr;
  count += next.count, tokens += next.tokens;
  loss += next.loss, grad_norm += next.grad_norm, seconds += next.seconds;
  loss_low = std::min(loss_low, next.loss_low);
  loss_high = std::max(loss_high, next.loss_high);
  grad_norm_high = std::max(grad_norm_high, next.grad_norm_high);
  seconds_high = std::max(seconds_high, next.seconds_high);
}

void RunSeries::add_step(const StepRecord& it) {
  const Bucket one{.last = it.step,
                   .count = 1,
                   .tokens = it.tokens,
                   .loss = it.loss,
                   .loss_low = it.loss,
                   .loss_high = it.loss,
                   .lr = it.lr,
                   .grad_norm = it.grad_norm,
                   .grad_norm_high = it.grad_norm,
                   .seconds = it.seconds,
                   .seconds_high = it.seconds};
  if (!buckets_.empty() && buckets_.back().count < width_) return buckets_.back().merge(one);
  buckets_.push_back(one);
  if (buckets_.size() < kMostBuckets) return;
  for (size_t i = 0; i < buckets_.size() / 2; ++i) {
    buckets_[i] = buckets_[2 * i];
    buckets_[i].merge(buckets_[2 * i + 1]);
  }
  buckets_.resize(buckets_.size() / 2);
  width_ *= 2;
}

void RunSeries::add_line(const Json& line) {
  const std::string kind = text_at(line, "kind");
  if (kind == "sample") {
    samples_.push_back(line);
    if (samples_.size() > kMostSamples) samples_.erase(samples_.begin() + kMostSamples / 4);
    return;
  }
  std::vector<Json>* const lines = kind == "evaluation"   ? &evaluations_
                                   : kind == "value"      ? &values_
                                   : kind == "checkpoint" ? &checkpoints_
                                                          : nullptr;
  if (lines == nullptr) return;
  lines->push_back(line);
  if (lines->size() > kMostLines) thin_out(*lines);
}

Json RunSeries::to_json() const {
  Json steps = Json::object();
  for (const char* column : {"step", "count", "loss", "loss_low", "loss_high", "lr", "grad_norm",
                             "grad_norm_high", "seconds", "seconds_high", "tokens_per_second"})
    steps[column] = Json::array();
  for (const Bucket& it : buckets_) {
    const auto count = static_cast<double>(it.count);
    steps["step"].push_back(it.last);
    steps["count"].push_back(it.count);
    const auto add = [&](const char* column, double value) { steps[column].push_back(seven_digits(value)); };
    add("loss", it.loss / count);
    add("loss_low", it.loss_low);
    add("loss_high", it.loss_high);
    add("lr", it.lr);
    add("grad_norm", it.grad_norm / count);
    add("grad_norm_high", it.grad_norm_high);
    add("seconds", it.seconds / count);
    add("seconds_high", it.seconds_high);
    add("tokens_per_second", it.seconds > 0 ? static_cast<double>(it.tokens) / it.seconds : 0);
  }
  return {{"steps", std::move(steps)},
          {"evaluations", evaluations_},
          {"values", values_},
          {"samples", samples_},
          {"checkpoints", checkpoints_}};
}

}  // namespace tessera

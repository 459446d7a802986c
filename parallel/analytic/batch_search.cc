#include "parallel/analytic/batch_search.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "graph/base/text.h"

namespace tessera {

namespace {

constexpr int64_t kMostBatches = 4096;
constexpr double kClose = 0.05;

double rate_of(int64_t batch, double seconds) { return static_cast<double>(batch) / seconds; }

// What would do, with the batch that needs least of a device.
Status none_fits(const TransformerShape& model, const Fleet& fleet, StepSearchOptions options,
                 const std::vector<int64_t>& batches) {
  int64_t least = INT64_MAX, of = batches.front();
  options.wide = true;
  for (const int64_t batch : batches) {
    options.global_batch = batch;
    const Result<LeastLimit> found = least_limit(model, fleet, options, least);
    if (!found.ok()) return found.status();
    if (found->bytes < least) least = found->bytes, of = batch;
  }
  options.global_batch = of;
  return nothing_fits(model, fleet, options)
      .with_context(
          format("batches from {} to {}, of which {} needs the least", batches.front(), batches.back(), of));
}

}  // namespace

Result<BatchRange> parse_batch_range(std::string_view text, int64_t devices) {
  if (text == "auto") return BatchRange{1, 64 * std::max<int64_t>(1, devices), 0, kClose};
  const size_t dots = text.find(".."), slash = text.find('/');
  BatchRange range;
  if (dots != std::string_view::npos) {
    const auto least = parse_i64(text.substr(0, dots));
    const auto most =
        parse_i64(text.substr(dots + 2, slash == std::string_view::npos ? slash : slash - dots - 2));
    const auto every =
        slash == std::string_view::npos ? std::optional<int64_t>(0) : parse_i64(text.substr(slash + 1));
    const bool step = every && (slash == std::string_view::npos || *every > 0);
    if (least && most && step && *least >= 1 && *least <= *most && *most <= int64_t{1} << 32) {
      range = {*least, *most, *every, 0};
      if (range.every == 0 || range.most / range.every <= kMostBatches) return range;
    }
  }
  return Status(
      StatusCode::kInvalidArgument,
      format("batch is '{}', wanted a whole number from 1, auto, LEAST..MOST or LEAST..MOST/STEP with "
             "at most {} steps",
             text, kMostBatches));
}

std::vector<int64_t> batches_of(const BatchRange& range) {
  std::vector<int64_t> all;
  if (range.every > 0) {
    for (int64_t n = (range.least + range.every - 1) / range.every; n * range.every <= range.most; ++n)
      all.push_back(n * range.every);
    return all;
  }
  all = {range.least, range.most};
  for (int64_t n = 1; n <= range.most; n *= 2)
    for (const int64_t batch : {n, 3 * n})
      if (batch > range.least && batch < range.most) all.push_back(batch);
  std::ranges::sort(all);
  const auto same = std::ranges::unique(all);
  all.erase(same.begin(), same.end());
  return all;
}

Result<BatchSearchResult> search_batch(const TransformerShape& model, const Fleet& fleet,
                                       const StepSearchOptions& given, const BatchRange& range) {
  const std::vector<int64_t> batches = batches_of(range);
  if (batches.empty())
    return Status(StatusCode::kInvalidArgument,
                  format("batch: no multiple of {} is from {} to {}", range.every, range.least, range.most));
  StepSearchOptions options = given;
  BatchSearchResult result;
  std::vector<double> bounds(batches.size(), INFINITY);  // seconds, by batch
  size_t best = batches.size();
  Status failure;
  // The largest first, as it nearly always processes most; of the others only what processes more counts.
  // What saves memory at a price is turned to only when no batch fits without.
  const auto look = [&](size_t i, double below_s) -> Result<StepSearchResult> {
    options.global_batch = batches[i], options.most_s = below_s;
    options.advise = false;
    auto found = search_step(model, fleet, options);
    ++result.looked;
    if (found.ok()) bounds[i] = std::isinf(bounds[i]) ? found->bound_s : std::max(bounds[i], found->bound_s);
    return found;
  };
  for (const bool saving : {false, true}) {
    options.wide = true, options.last_resort = false;
    if (saving) options.shard = options.offload = true;
    for (size_t i = batches.size(); i-- > 0;) {
      const double below = best < batches.size() ? static_cast<double>(batches[i]) / result.per_s
                                                 : static_cast<double>(INFINITY);
      auto found = look(i, below);
      if (!found.ok()) {
        if (failure.ok()) failure = found.status();
        continue;
      }
      if (!(found->best.time.step_s < below)) continue;
      best = i, result.per_s = rate_of(batches[i], found->best.time.step_s);
      result.step = std::move(*found);
    }
    if (best < batches.size() || (given.shard && given.offload)) break;
  }
  if (best == batches.size()) {
    if (!given.advise || failure.code() != StatusCode::kOutOfMemory) return failure;
    return none_fits(model, fleet, given, batches);
  }
  for (size_t i = 0; range.close > 0 && i < best; ++i) {
    const double enough = static_cast<double>(batches[i]) / (result.per_s * (1 - range.close));
    auto found = look(i, enough);
    if (!found.ok() || !(found->best.time.step_s < enough)) continue;
    best = i, result.step = std::move(*found);
    break;
  }
  result.batch = batches[best];
  // Without a limit in time, so that runners-up and gap are those of this batch.
  options.global_batch = result.batch, options.most_s = INFINITY, options.advise = given.advise;
  TSR_ASSIGN_OR_RETURN(result.step, search_step(model, fleet, options));
  ++result.looked;
  bounds[best] = std::max(bounds[best], result.step.bound_s);
  result.per_s = rate_of(result.batch, result.step.best.time.step_s);
  result.bound_per_s = result.per_s;
  for (size_t i = 0; i < batches.size(); ++i)
    if (std::isfinite(bounds[i]))
      result.bound_per_s = std::max(result.bound_per_s, rate_of(batches[i], bounds[i]));
  return result;
}

}  // namespace tessera

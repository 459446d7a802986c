#include "parallel/analytic/certificate_bounds.h"

#include <algorithm>
#include <cmath>

namespace tessera {

namespace {

double both(const StagePasses& passes) { return passes.forward_s + passes.backward_s; }

}  // namespace

CertificateBounds::CertificateBounds(const TransformerShape& model, const Cluster& cluster,
                                     const StepSearchOptions& options, const ForeignPlan& plan)
    : model_(model),
      cluster_(cluster),
      options_(options),
      plan_(plan),
      times_(model, plan_, cluster),
      m_(options.global_batch / (plan.micro_batch * plan.data())),
      limit_(options.memory_limit > 0 ? options.memory_limit : cluster.kinds[0].memory_bytes) {}

bool CertificateBounds::recomputes(Recompute way) const {
  if (options_.recompute) return *options_.recompute == way;
  return way != Recompute::kSelective || !plan_.fused_attention;
}

StagePasses CertificateBounds::passes(const StageBlocks& blocks, int32_t virtual_stage) const {
  return times_.of(blocks, virtual_stage == 0, virtual_stage + 1 == plan_.pp * plan_.virtual_stages);
}

StageBlocks CertificateBounds::fastest(int64_t count) const {
  if (recomputes(Recompute::kNone)) return {count, 0, 0};
  return recomputes(Recompute::kSelective) ? StageBlocks{count, 0, count} : StageBlocks{count, count, 0};
}

int64_t CertificateBounds::memory_bytes(int32_t device, const std::vector<StageBlocks>& stages) const {
  StageBlocks whole;
  for (size_t v = static_cast<size_t>(device); v < stages.size(); v += static_cast<size_t>(plan_.pp)) {
    whole.blocks += stages[v].blocks;
    whole.full += stages[v].full;
    whole.selective += stages[v].selective;
  }
  return times_.memory_bytes(whole, device == 0, device + 1 == plan_.pp, in_flight(plan_, device, m_),
                             plan_.virtual_stages);
}

// The fastest contents of a device with `count` blocks that fit: for each number of selectively recomputed
// blocks the fewest that are recomputed whole.
std::optional<StageBlocks> CertificateBounds::contents(int32_t device, int64_t count) const {
  const int64_t flights = in_flight(plan_, device, m_);
  const auto fits = [&](int64_t full, int64_t selective) {
    return times_.memory_bytes({count, full, selective}, device == 0, device + 1 == plan_.pp, flights,
                               plan_.virtual_stages) <= limit_;
  };
  if (options_.recompute) {
    const StageBlocks only = fastest(count);
    return fits(only.full, only.selective) ? std::optional(only) : std::nullopt;
  }
  std::optional<StageBlocks> best;
  double least = INFINITY;
  for (int64_t selective = 0; selective <= (recomputes(Recompute::kSelective) ? count : 0); ++selective) {
    int64_t low = 0, high = count - selective;
    if (!fits(high, selective)) continue;
    while (low < high) {
      const int64_t middle = (low + high) / 2;
      if (fits(middle, selective))
        high = middle;
      else
        low = middle + 1;
    }
    const StageBlocks stage{count, low, selective};
    const double time = both(times_.of(stage, false, false));
    if (time < least) least = time, best = stage;
    if (low == 0) break;  // more of it only costs
  }
  return best;
}

// The least of P + what comes after, over all pipelines of P seconds or more: a longer one may hide more
// communication behind its backward passes. Convex in P; a pipeline's backward pass of one micro-batch is
// shorter than P / m, and no device holds fewer parameters than the average.
double CertificateBounds::step_after(double pipeline_s) const {
  struct Position {
    bool first, last;
  };
  const std::vector<Position> positions =
      plan_.pp == 1 ? std::vector<Position>{{true, true}}
                    : std::vector<Position>{{true, false}, {false, false}, {false, true}};
  double share = 0;
  for (const auto& [first, last] : positions)
    for (const int64_t n : {int64_t{0}, int64_t{1}, model_.L}) {
      const bool full = recomputes(Recompute::kFull), selective = !full && recomputes(Recompute::kSelective);
      const StagePasses slowest = times_.of({n, full ? n : 0, selective ? n : 0}, first, last);
      if (both(slowest) > 0) share = std::max(share, slowest.backward_s / both(slowest));
    }
  StageParameters parameters = times_.counts(model_.L, true, true);
  for (double* count : {&parameters.dense, &parameters.experts, &parameters.trained,
                        &parameters.trained_experts, &parameters.sharded, &parameters.trained_sharded})
    *count /= plan_.pp;
  const auto step = [&](double p) {
    const AfterPipeline after =
        after_pipeline(model_, plan_, cluster_, m_, parameters, share * p / static_cast<double>(m_));
    return p + after.gradients_s + after.update_s;
  };
  // From where on everything is hidden, more pipeline only costs.
  double a = pipeline_s, b = pipeline_s;
  for (int doubled = 0; doubled < 60 && step(b + std::max(b, 1e-9)) < step(b); ++doubled)
    b += std::max(b, 1e-9);
  b += std::max(b, 1e-9);
  constexpr double kGolden = 0.6180339887498949;
  double least = std::min(step(a), step(b));
  for (int i = 0; i < 80; ++i) {
    const double x = b - kGolden * (b - a), y = a + kGolden * (b - a);
    const double at_x = step(x), at_y = step(y);
    least = std::min({least, at_x, at_y});
    (at_x <= at_y ? b : a) = at_x <= at_y ? y : x;
  }
  return least;
}

double CertificateBounds::closed_form() const {
  const double m = static_cast<double>(m_);
  const int32_t count = plan_.pp * plan_.virtual_stages;
  if (chunked()) {
    const int64_t each = model_.L / count;
    double work = 0;
    for (int32_t v = 0; v < count; ++v) work += both(passes(fastest(each), v));
    return step_after(m * work / plan_.pp);
  }
  // Of a stage with one block, and what each further one adds at least.
  struct Line {
    double h = 0, g = 0, more_h = 0, more_g = 0;
  };
  std::vector<Line> lines;
  double work = 0, least_more = INFINITY;
  for (int32_t s = 0; s < plan_.pp; ++s) {
    const StagePasses one = passes(fastest(1), s), two = passes(fastest(2), s);
    const double done = static_cast<double>(std::min<int64_t>(m_, plan_.pp - s));
    const auto g = [&](const StagePasses& x) { return (m - 1) * x.backward_s + (m - done) * x.forward_s; };
    lines.push_back({both(one), g(one), both(two) - both(one), g(two) - g(one)});
    work += both(one);
    least_more = std::min(least_more, both(two) - both(one));
  }
  // However the blocks lie, the busiest device has the average, and does it m times.
  const double further = static_cast<double>(model_.L - plan_.pp);
  double pipeline = m * (work + further * least_more) / plan_.pp;
  // Weights that make a further block cost the same wherever it is.
  double inverse = 0;
  for (const Line& line : lines) inverse += line.more_g > 0 ? 1 / line.more_g : 0;
  double fixed = 0, more = INFINITY;
  for (const Line& line : lines) {
    const double y = inverse > 0 && line.more_g > 0 ? 1 / line.more_g / inverse : 0;
    fixed += line.h + y * line.g;
    more = std::min(more, line.more_h + y * line.more_g);
  }
  pipeline = std::max(pipeline, fixed + further * more);
  return step_after(pipeline);
}

bool CertificateBounds::none_fits() const {
  if (chunked()) {
    for (int32_t device = 0; device < plan_.pp; ++device)
      if (!contents(device, model_.L / plan_.pp)) return true;
    return false;
  }
  int64_t most = 0;
  for (int32_t device = 0; device < plan_.pp; ++device) {
    // Fewer blocks need less, so the most that fit are found by halving.
    int64_t low = 0, high = model_.L;
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      if (contents(device, middle))
        low = middle;
      else
        high = middle - 1;
    }
    if (low == 0) return true;
    most += low;
  }
  return most < model_.L;
}

// Chunks are equal, and recomputed blocks are dealt out to a device's chunks in turn. A device does all its
// work, after the first micro-batch has come through the first chunks before it and before the last goes
// back.
double CertificateBounds::chunked_pipeline() const {
  const int64_t chunks = plan_.virtual_stages, each = model_.L / (plan_.pp * chunks);
  double before = 0, pipeline = 0;
  for (int32_t device = 0; device < plan_.pp; ++device) {
    const auto whole = contents(device, each * chunks);
    if (!whole) return INFINITY;
    double work = 0, first_chunk = 0;
    for (int64_t chunk = 0; chunk < chunks; ++chunk) {
      StageBlocks stage{each, whole->full / chunks + (chunk < whole->full % chunks ? 1 : 0), 0};
      stage.selective = std::min(each - stage.full,
                                 whole->selective / chunks + (chunk < whole->selective % chunks ? 1 : 0));
      const double time = both(passes(stage, static_cast<int32_t>(chunk) * plan_.pp + device));
      work += time;
      if (chunk == 0) first_chunk = time;
    }
    pipeline = std::max(pipeline, static_cast<double>(m_) * work + before);
    before += first_chunk;
  }
  return pipeline;
}

bool CertificateBounds::none_below(double target_s) const {
  if (chunked()) return step_after(chunked_pipeline()) >= target_s;
  const auto blocks = static_cast<size_t>(model_.L), stages = static_cast<size_t>(plan_.pp);
  const size_t most = blocks - stages + 1;
  // By stage and blocks: one micro-batch's passes, and what the stage sets as pace for the others.
  std::vector<std::vector<double>> once(stages), pace(stages);
  for (size_t s = 0; s < stages; ++s)
    for (size_t n = 1; n <= most; ++n) {
      const auto stage = contents(static_cast<int32_t>(s), static_cast<int64_t>(n));
      if (!stage) break;
      const StagePasses some = passes(*stage, static_cast<int32_t>(s));
      const double lead = static_cast<double>(std::min<int64_t>(m_, plan_.pp - static_cast<int32_t>(s)) - 1);
      once[s].push_back(both(some));
      pace[s].push_back(static_cast<double>(m_ - 1) * both(some) - lead * some.forward_s);
    }
  // The smallest pace that any cut has, by (stages done, blocks done).
  std::vector<double> steadiest(blocks + 1, INFINITY);
  steadiest[0] = -INFINITY;
  for (size_t s = 0; s < stages; ++s) {
    std::vector<double> next(blocks + 1, INFINITY);
    for (size_t done = s; done <= blocks; ++done)
      for (size_t n = 1; n <= once[s].size() && done + n <= blocks; ++n)
        next[done + n] = std::min(next[done + n], std::max(steadiest[done], pace[s][n - 1]));
    steadiest.swap(next);
  }
  if (!std::isfinite(steadiest[blocks])) return true;  // nothing fits
  // Any cut's pipeline takes the sum of its `once` and the largest of its `pace`. Cuts with the smallest sum
  // come first; what is left after one has a smaller pace, down to the smallest.
  for (double limit = INFINITY;;) {
    struct Sum {
      double once = INFINITY, pace = 0;
    };
    std::vector<Sum> least(blocks + 1);
    least[0] = {0, -INFINITY};
    for (size_t s = 0; s < stages; ++s) {
      std::vector<Sum> next(blocks + 1);
      for (size_t done = s; done <= blocks; ++done) {
        if (!std::isfinite(least[done].once)) continue;
        for (size_t n = 1; n <= once[s].size() && done + n <= blocks; ++n) {
          if (!(pace[s][n - 1] < limit)) continue;
          const double sum = least[done].once + once[s][n - 1];
          const double slowest = std::max(least[done].pace, pace[s][n - 1]);
          Sum& best = next[done + n];
          if (sum < best.once || (sum == best.once && slowest < best.pace)) best = {sum, slowest};
        }
      }
      least.swap(next);
    }
    const Sum& all = least[blocks];
    if (!std::isfinite(all.once)) return true;  // no cut is left
    if (step_after(all.once + all.pace) < target_s) return false;
    limit = all.pace;
    if (step_after(all.once + steadiest[blocks]) >= target_s) return true;
  }
}

}  // namespace tessera

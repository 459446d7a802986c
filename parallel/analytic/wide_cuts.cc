#include "parallel/analytic/wide_cuts.h"

#include <algorithm>
#include <cmath>

#include "parallel/analytic/offload_time.h"
#include "parallel/analytic/zero_bubble_replay.h"
#include "parallel/search/pipeline_cuts.h"
#include "parallel/search/repeated_blocks.h"

namespace tessera {

namespace {

// Forward and input gradients: the way of a micro-batch there and back.
double way_seconds(const StagePasses& passes) { return seconds_of(passes) - passes.weight_s; }

}  // namespace

WideCuts::WideCuts(const TransformerShape& model, const Cluster& cluster, const StepSearchOptions& options,
                   const ForeignPlan& plan, int32_t chunks_to, const MeshTimes& mesh)
    : model_(model),
      cluster_(cluster),
      options_(options),
      plan_(plan),
      times_(mesh.of(plan_)),
      m_(options.global_batch / (plan.micro_batch * plan.data())),
      chunks_to_(std::max(chunks_to, plan.virtual_stages)) {
  for (const Recompute way : recomputations(options, plan)) add_way({way, 0, 0});
  if (allowed(options.recompute, Recompute::kNone) && options.offload && cluster.host_link.bytes_per_s > 0)
    for (int32_t quarters = 1; quarters <= 4; ++quarters) add_way({Recompute::kNone, quarters, 0});
  if (!options.offload && plan.offload_activations > 0) {
    ways_.clear();
    add_way({Recompute::kNone, plan.offload_activations, 0});
  }
}

void WideCuts::add_way(BlockWay way) {
  way.seconds = seconds_of(times_.of(blocks_of(2, way), false, false)) -
                seconds_of(times_.of(blocks_of(1, way), false, false));
  ways_.push_back(way);
}

Saving WideCuts::saving() const {
  return {plan_.sharded_attention, plan_.sharded_mlp, plan_.chunks, plan_.offload_optimizer};
}

void WideCuts::apply(const Saving& saving) {
  plan_.sharded_attention = saving.attention, plan_.sharded_mlp = saving.mlp;
  plan_.chunks = saving.chunks, plan_.offload_optimizer = saving.optimizer;
}

// What stages with so many blocks take, of those asked for. Devices alike share.
class WideCuts::Prices {
 public:
  Prices(const WideCuts& own, int64_t limit) : own_(own), limit_(limit) {}

  const Price& operator()(int32_t device, int64_t n) {
    const bool first = device == 0, last = holds_head(own_.plan_, device);
    const uint64_t kind =
        (static_cast<uint64_t>(own_.flights(device)) << 2) | (first ? 2 : 0) | (last ? 1 : 0);
    const auto [at, made] = known_.try_emplace((kind << 24) | static_cast<uint64_t>(n));
    Price& price = at->second;
    if (!made || n < own_.plan_.virtual_stages) return price;
    if (const auto stage = own_.fill(device, n, limit_)) {
      price.fits = true, price.blocks = *stage, price.passes = own_.passes(device, *stage);
    }
    return price;
  }

 private:
  const WideCuts& own_;
  const int64_t limit_;
  std::unordered_map<uint64_t, Price> known_;
};

// Of several numbers of chunks what every block keeps is least with the most or with the fewest.
int32_t WideCuts::chunks(int32_t device) const {
  return 2 * (plan_.pp - device - 1) + 1 < plan_.pp ? plan_.virtual_stages : chunks_to_;
}

int64_t WideCuts::flights(int32_t device) const {
  if (chunks_to_ == plan_.virtual_stages) return in_flight(plan_, device, m_);
  ForeignPlan plan = plan_;
  plan.virtual_stages = chunks(device);
  return in_flight(plan, device, m_);
}

StageMemory WideCuts::memory(int32_t device, const StageBlocks& stage) const {
  const int64_t held = flights(device);
  StageMemory memory = times_.memory(stage, device == 0, holds_head(plan_, device), held, chunks(device));
  // What the embedding keeps grows with the chunks.
  if (chunks_to_ > plan_.virtual_stages && device == 0)
    memory.activations -= (held - in_flight(plan_, device, m_)) * times_.end_activation_bytes(true, false);
  return memory;
}

// How the blocks of a device are computed, so that they fit; nothing when they cannot.
std::optional<StageBlocks> WideCuts::fill(int32_t device, int64_t count, int64_t limit) const {
  const StageBlocks kept = blocks_of(count, ways_.front());
  if (memory(device, kept).total() <= limit) return kept;
  bool any = false;
  for (const BlockWay& way : ways_) any = any || memory(device, blocks_of(count, way)).total() <= limit;
  if (!any) return std::nullopt;
  const int64_t held = flights(device), chunks = this->chunks(device);
  const BlockWay least{Recompute::kFull, 0, 0};
  const int64_t rest = memory(device, blocks_of(count, least)).total() -
                       (count * times_.activation_bytes(Recompute::kFull) * held + chunks - 1) / chunks;
  std::vector<BlockChoice> choices;
  std::vector<const BlockWay*> used;
  for (const BlockWay& way : ways_) {
    const int64_t away = way.quarters > 0 ? times_.offloaded_bytes(way.quarters) : 0;
    if (away > 0 && memory(device, blocks_of(count, way)).host > host_share_bytes(cluster_)) continue;
    choices.push_back(
        {way.seconds, ((times_.activation_bytes(way.recompute) - away) * held + chunks - 1) / chunks, away});
    used.push_back(&way);
  }
  if (choices.empty()) return std::nullopt;
  const auto found = solve_repeated_blocks(choices, count, limit - rest);
  if (!found.ok()) return std::nullopt;
  StageBlocks stage{count, 0, 0};
  for (size_t i = 0; i < used.size(); ++i) {
    if (used[i]->recompute == Recompute::kFull) stage.full += found->counts[i];
    if (used[i]->recompute == Recompute::kSelective) stage.selective += found->counts[i];
    if (used[i]->quarters > 0)
      stage.offloaded[static_cast<size_t>(used[i]->quarters - 1)] += found->counts[i];
  }
  return stage;
}

// A device's blocks dealt out to its chunks in turn.
std::vector<StageBlocks> WideCuts::deal(const StageBlocks& whole) const {
  const auto chunks = static_cast<size_t>(plan_.virtual_stages);
  if (chunks == 1) return {whole};
  std::vector<StageBlocks> parts(chunks);
  StageBlocks left = whole;
  for (int64_t i = 0; i < whole.blocks; ++i) {
    StageBlocks& part = parts[static_cast<size_t>(i) % chunks];
    ++part.blocks;
    const auto take = [](int64_t& from, int64_t& to) { return from > 0 && (--from, ++to, true); };
    if (take(left.full, part.full) || take(left.selective, part.selective)) continue;
    for (size_t q = 0; q < 4; ++q)
      if (take(left.offloaded[q], part.offloaded[q])) break;
  }
  return parts;
}

int32_t WideCuts::stage_of(int32_t device, size_t chunk) const {
  if (plan_.schedule == ForeignSchedule::kZbV && chunk == 1) return 2 * plan_.pp - 1 - device;
  return static_cast<int32_t>(chunk) * plan_.pp + device;
}

StagePasses WideCuts::passes(int32_t device, const StageBlocks& whole) const {
  StagePasses sum = times_.of(whole, device == 0, holds_head(plan_, device));
  const double sends = (plan_.virtual_stages - 1) * times_.transfer_s();
  sum.forward_s += sends, sum.backward_s += sends;
  return sum;
}

std::optional<CutPipeline> WideCuts::pipeline(int64_t limit, double best_s) const {
  const auto m = static_cast<double>(m_);
  CutPipeline result;
  Prices priced(*this, limit);
  // Passes grow with every block, and so do prices: unless some blocks' forward and others' backward wait.
  const bool waits = std::ranges::any_of(ways_, [](const BlockWay& way) { return way.quarters > 0; });
  const double p = plan_.pp, hops = 2 * (p - 1) * times_.transfer_s();
  const double work = kBoundSlack * (seconds_of(times_.of(blocks_of(model_.L, ways_.front()), true, true)) +
                                     (plan_.pp > 1 ? hops : 0));
  const auto as_before = [&](int32_t d) {
    return d > 1 && holds_head(plan_, d) == holds_head(plan_, d - 1) && flights(d) == flights(d - 1);
  };
  const auto take = [&](const Result<PipelineCuts>& cuts, bool bounds) {
    if (!cuts.ok()) return false;
    if (bounds) result.bound_s = std::max(result.bound_s, kBoundSlack * std::min(best_s, cuts->time_s));
    if (cuts->first.empty()) {
      result.all_kept = result.all_kept && !bounds;
      return true;
    }
    std::vector<int64_t> counts;
    for (int32_t d = 0; d < plan_.pp; ++d) {
      const int64_t end = d + 1 < plan_.pp ? cuts->first[static_cast<size_t>(d) + 1] : model_.L;
      counts.push_back(end - cuts->first[static_cast<size_t>(d)]);
      const StageBlocks& whole = priced(d, counts.back()).blocks;
      result.all_kept = result.all_kept && whole == blocks_of(whole.blocks, ways_.front());
    }
    add_cut(priced, counts, result);
    return true;
  };
  const auto cut = [&](auto&& price_of, bool bounds) {
    const auto price_at = [&](int32_t s, int64_t n) {
      const Price& price = priced(s, n);
      return price.fits ? price_of(s, price.passes) : StagePrice{INFINITY, INFINITY};
    };
    const auto floor = [&](int32_t s, int64_t n) {
      if (n < plan_.virtual_stages) return 0.0;
      const Price& price = priced(s, n);
      if (!price.fits) return static_cast<double>(INFINITY);
      const double own = m * seconds_of(price.passes);
      if (waits && plan_.schedule == ForeignSchedule::k1F1B) return own;
      const StagePrice shared = price_of(s, price.passes);
      return std::max(own, shared.pace_s + (shared.once_s > 0 ? work : 0));
    };
    return take(cut_growing_blocks(model_.L, plan_.pp, price_at, floor, (1 + 1e-8) * best_s, as_before),
                bounds);
  };
  // Only the device counts that has most to do.
  const auto cut_busiest = [&] {
    const auto pace = [&](int32_t s, int64_t n) {
      const Price& price = priced(s, n);
      return price.fits ? m * seconds_of(price.passes) : static_cast<double>(INFINITY);
    };
    return take(
        cut_to_least_pace(model_.L, plan_.pp, plan_.virtual_stages, pace, (1 + 1e-8) * best_s, as_before),
        true);
  };
  result.bound_s = pipeline_bound(model_, options_, plan_, plan_.virtual_stages, times_);
  const auto usual = [&](int32_t, const StagePasses& s) {
    return StagePrice{seconds_of(s), (m - 1) * seconds_of(s)};
  };
  bool fits = false;
  switch (plan_.schedule) {
    case ForeignSchedule::k1F1B:
      fits = cut(
                 [&](int32_t d, const StagePasses& s) {
                   const double lead = static_cast<double>(flights(d) - 1) * s.forward_s;
                   return StagePrice{seconds_of(s), (m - 1) * seconds_of(s) - lead};
                 },
                 true) &&
             cut(usual, false);
      break;
    case ForeignSchedule::kGpipe: fits = cut(usual, true); break;
    case ForeignSchedule::kZbH1:
    case ForeignSchedule::kZbH2:
      fits = cut_busiest() && cut(usual, false);
      if (fits && result.bound_s < best_s) wait_for_first(priced, best_s, result);
      break;
    case ForeignSchedule::kInterleaved:
      fits = cut_busiest();
      if (fits && result.bound_s < best_s) wait_for_first_chunks(priced, best_s, result);
      break;
    case ForeignSchedule::kZbV: fits = cut_busiest(); break;
  }
  return fits ? std::optional(std::move(result)) : std::nullopt;
}

// The least that forward passes and input gradients of a device between the ends take, by its blocks: from a
// few numbers of them, up to the first that does not fit or is not done in `step_s`.
ConvexFloor WideCuts::least_way(Prices& priced, double step_s) const {
  const double ends = way_seconds(times_.of({}, false, false)),
               block = way_seconds(times_.of(blocks_of(1, ways_.front()), false, false)) - ends;
  std::vector<KnownValue> known = {{0, ends}};
  constexpr int64_t kKnown = 32;
  const int64_t most = model_.L - plan_.pp + 1, share = (model_.L + plan_.pp - 1) / plan_.pp;
  const int64_t stride = std::max<int64_t>(1, 2 * share / kKnown);
  for (int64_t n = std::max<int64_t>(stride, plan_.virtual_stages); known.back().at < most; n += stride) {
    n = std::min(n, most);  // nobody has more: beyond what is known the floor says nothing
    const Price& price = priced(1, n);
    if (!price.fits || static_cast<double>(m_) * seconds_of(price.passes) > step_s) {
      known.push_back({n, known.back().value + static_cast<double>(n - known.back().at) * block});
      break;
    }
    known.push_back({n, way_seconds(price.passes)});
  }
  return {known, block};
}

// What holds of the first device holds of every device and those after it: the way from it there and back,
// with all later forward passes and input gradients, beside what it does meanwhile. Those take no less than
// blocks spread evenly, of which one more takes no more than one fewer saves on a device before them: so the
// most blocks on every device, from the last one on, are the most in all.
bool WideCuts::some_cut_below(Prices& priced, double step_s) const {
  const auto m = static_cast<double>(m_);
  const StagePasses none = times_.of({}, false, false),
                    one = times_.of(blocks_of(1, ways_.front()), false, false);
  const double block = way_seconds(one) - way_seconds(none);
  const ConvexFloor even = least_way(priced, step_s);
  const bool spread = plan_.pp > 2 && even.steepest() <= m * (seconds_of(one) - seconds_of(none)) -
                                                             static_cast<double>(flights(0) - 1) *
                                                                 (one.forward_s - none.forward_s);
  int64_t held = 0, least = std::max<int64_t>(1, plan_.virtual_stages);
  double ends = 0;
  for (int32_t d = plan_.pp; d-- > 0;) {
    const double count = plan_.pp - 1 - d, blocks = static_cast<double>(held),
                 extra = ends - count * way_seconds(none);
    const double later = kBoundSlack * (spread && d + 1 < plan_.pp ? extra + count * even(blocks / count)
                                                                   : ends + blocks * block);
    const auto may = [&](int64_t n) {
      const Price& price = priced(d, n);
      if (!price.fits || m * seconds_of(price.passes) > step_s) return false;
      // As many forward passes as it may hold are done before its first input gradient.
      return later + m * seconds_of(price.passes) -
                 static_cast<double>(flights(d) - 1) * price.passes.forward_s <=
             step_s;
    };
    int64_t low = least - 1, high = std::max(least, model_.L - plan_.pp + 1);
    while (low < high) {
      const int64_t middle = (low + high + 1) / 2;
      const bool fine = may(middle);
      (fine ? low : high) = fine ? middle : middle - 1;
    }
    if (low < least) return false;
    held += low;
    if (held + d * least >= model_.L) return true;
    ends += way_seconds(times_.of({}, d == 0, holds_head(plan_, d)));
  }
  return false;
}

void WideCuts::wait_for_first(Prices& priced, double best_s, CutPipeline& result) const {
  double low = result.bound_s, high = best_s;
  if (std::isinf(high)) high = 4 * low;
  if (!some_cut_below(priced, high)) {
    result.bound_s = kBoundSlack * high;
    return;
  }
  for (int i = 0; i < 10; ++i) {
    const double middle = (low + high) / 2;
    (some_cut_below(priced, middle) ? high : low) = middle;
  }
  result.bound_s = std::max(result.bound_s, kBoundSlack * low);
}

// The most blocks of a device that fits and keeps within `step_s`, beside `before`; at least as many as
// `least`, which are not asked about.
int64_t WideCuts::most_blocks(Prices& priced, int32_t device, int64_t least, int64_t most, double before,
                              double step_s) const {
  while (least < most) {
    const int64_t middle = (least + most + 1) / 2;
    const Price& price = priced(device, std::max<int64_t>(middle, plan_.virtual_stages));
    const bool fine =
        price.fits && kBoundSlack * (static_cast<double>(m_) * seconds_of(price.passes) + before) <= step_s;
    (fine ? least : most) = fine ? middle : middle - 1;
  }
  return least;
}

// How many blocks the devices have, each as many as it does between the first chunks of those before it in
// `step_s`; empty where that is fewer than all. One block more before a device takes less from it than it
// adds. First chunks of a device with n blocks have n / v, rounded up: with `most` blocks a device at most,
// those of several devices have no fewer than the convex hull of that says for each with as many.
std::vector<int64_t> WideCuts::chunks_below(Prices& priced, double step_s) const {
  const int64_t chunks = plan_.virtual_stages, all = model_.L - plan_.pp + 1;
  int64_t most = 1;
  for (const int32_t d : {0, std::max(0, plan_.pp - 2), plan_.pp - 1})
    most = std::max(most, most_blocks(priced, d, 0, all, 0, step_s));
  const double v = static_cast<double>(chunks), even = static_cast<double>(most / chunks * chunks),
               rest = static_cast<double>(most) - even;
  const auto first_chunk = [&](double n) {
    return n <= even || rest == 0 ? std::max(1.0, n / v) : std::max(1.0, even / v + (n - even) / rest);
  };
  const double block =
      seconds_of(times_.of(blocks_of(1, ways_.front()), false, false)) - 2 * times_.transfer_s();
  double others = 0;
  int64_t begun = 0;
  std::vector<int64_t> counts;
  for (int32_t d = 0; d < plan_.pp; ++d) {
    const double before = d == 0 ? 0 : others + d * first_chunk(static_cast<double>(begun) / d) * block;
    const int64_t left = model_.L - begun - chunks * (plan_.pp - 1 - d);
    counts.push_back(most_blocks(priced, d, 0, std::min(all, std::max<int64_t>(left, 0)), before, step_s));
    begun += counts.back();
    others += seconds_of(times_.of({}, d == 0, false));
  }
  return begun < model_.L ? std::vector<int64_t>() : counts;
}

// Adds the cut that the bound comes from, which has more blocks on the first devices.
void WideCuts::wait_for_first_chunks(Prices& priced, double best_s, CutPipeline& result) const {
  double low = result.bound_s, high = best_s;
  if (std::isinf(high)) high = 4 * low;
  std::vector<int64_t> counts = chunks_below(priced, high);
  if (counts.empty()) {
    result.bound_s = kBoundSlack * high;
    return;
  }
  for (int i = 0; i < 14; ++i) {
    const double middle = (low + high) / 2;
    std::vector<int64_t> now = chunks_below(priced, middle);
    (now.empty() ? low : high) = middle;
    if (!now.empty()) counts = std::move(now);
  }
  result.bound_s = std::max(result.bound_s, kBoundSlack * low);
  for (int32_t d = 0; d < plan_.pp; ++d)
    if (!priced(d, counts[static_cast<size_t>(d)]).fits) return;
  add_cut(priced, counts, result);
}

void WideCuts::add_cut(Prices& priced, const std::vector<int64_t>& counts, CutPipeline& result) const {
  std::vector<StageBlocks> stages(static_cast<size_t>(plan_.pp * plan_.virtual_stages));
  for (int32_t d = 0; d < plan_.pp; ++d) {
    const std::vector<StageBlocks> parts = deal(priced(d, counts[static_cast<size_t>(d)]).blocks);
    for (size_t chunk = 0; chunk < parts.size(); ++chunk)
      stages[static_cast<size_t>(stage_of(d, chunk))] = parts[chunk];
  }
  if (std::ranges::find(result.cuts, stages) == result.cuts.end()) result.cuts.push_back(std::move(stages));
}

}  // namespace tessera

#include "parallel/planner/generation_prices.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "graph/base/text.h"
#include "graph/transform/fewer_blocks.h"
#include "graph/transform/precision.h"
#include "graph/transform/serving.h"
#include "parallel/pricing/link_time.h"
#include "parallel/pricing/reserved_memory.h"
#include "parallel/search/divisors.h"

namespace tessera {

namespace {

int64_t divide_up(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Sum over all stages; the slowest.
std::pair<double, double> all_and_slowest(const std::vector<GenerationPass>& stages) {
  double all = 0, slowest = 0;
  for (const GenerationPass& stage : stages) {
    all += stage.seconds();
    slowest = std::max(slowest, stage.seconds());
  }
  return {all, slowest};
}

}  // namespace

std::string to_text(const GenerationPlan& plan) {
  return format("tp={},pp={},dp={},batch={}{}", plan.tp, plan.pp, plan.dp, plan.batch,
                plan.prefill_batch > 1 ? format(",prefill={}", plan.prefill_batch) : std::string());
}

Result<GenerationPrices> GenerationPrices::create(const Graph& forward, const Cluster& cluster,
                                                  const GenerationWork& work) {
  GenerationPrices prices(cluster, work);
  for (const TensorId id : forward.tensors_of_kind(TensorKind::kParameter))
    prices.parameters_ += forward.type(id).shape.elements();
  // Requirements of the whole text on the model: a table of positions may be shorter.
  ServingOptions options;
  options.pages = options.rows = 1;
  options.page_size = options.context = work.context();
  TSR_RETURN_IF_ERROR(make_serving(forward, options).status());
  TSR_ASSIGN_OR_RETURN(FewerBlocks few, with_fewer_blocks(forward));
  int64_t heads = 0;
  for (const Node& node : few.graph.nodes())
    if (node.op->context.keys >= 0) heads = std::gcd(heads, few.graph.type(node.inputs[0]).shape[2]);
  prices.tensor_sizes_ = divisors(heads);
  prices.window_ = paged_window(few.graph, work.context());
  prices.like_ = std::move(few.like);
  prices.few_ = std::move(few.graph);
  if (work.dtype != DType::kF32) {
    TSR_ASSIGN_OR_RETURN(prices.few_, with_mixed_precision(prices.few_, work.dtype));
  }
  TSR_RETURN_IF_ERROR(prices.profile(1, false, 1).status());
  return prices;
}

// A decode step has the text of the middle token; a prompt's token sees half of the prompt on average.
ServedStep GenerationPrices::step_of(bool is_prefill, int64_t sequences) const {
  if (is_prefill) return {sequences, work_.prompt, divide_up(work_.prompt, 2)};
  return {sequences, 1, work_.prompt + divide_up(work_.new_tokens, 2)};
}

Result<ServingProgram> GenerationPrices::lower(int32_t tp, bool is_prefill, int64_t sequences) const {
  return lower_serving(few_, work_.dtype, step_of(is_prefill, sequences), tp, catalog_);
}

Result<const ServingProfile*> GenerationPrices::profile(int32_t tp, bool is_prefill, int64_t sequences) {
  if (sequences > kMostPositions / work_.context())
    return Status(StatusCode::kOutOfMemory,
                  format("{} sequences of {} tokens are more than memory holds", sequences, work_.context()));
  const auto key = std::tuple(tp, is_prefill, sequences);
  auto known = profiles_.find(key);
  if (known == profiles_.end()) {
    const auto made = [&]() -> Result<ServingProfile> {
      TSR_ASSIGN_OR_RETURN(const ServingProgram program, lower(tp, is_prefill, sequences));
      Cluster cluster = cluster_;
      cluster.devices.resize(std::max(cluster.devices.size(), static_cast<size_t>(tp)), cluster.devices[0]);
      return profile_serving(program, step_of(is_prefill, sequences), cluster);
    };
    known = profiles_.emplace(key, made()).first;
  }
  if (!known->second.ok()) return known->second.status();
  return &*known->second;
}

std::vector<int32_t> GenerationPrices::blocks_of(const GenerationPlan& plan, int32_t stage) const {
  const int32_t each = blocks() / plan.pp, more = blocks() % plan.pp;
  const int32_t begin = stage * each + std::min(stage, more), end = begin + each + (stage < more ? 1 : 0);
  std::vector<int32_t> own;
  if (stage == 0) own.push_back(0);
  for (int32_t b = begin; b < end; ++b) own.push_back(like_[static_cast<size_t>(b)] + 1);
  if (stage + 1 == plan.pp) own.push_back(*std::ranges::max_element(like_) + 2);
  return own;
}

Result<std::vector<GenerationPass>> GenerationPrices::passes(const GenerationPlan& plan, bool is_prefill,
                                                             int64_t sequences) {
  TSR_ASSIGN_OR_RETURN(const ServingProfile* const profile, this->profile(plan.tp, is_prefill, sequences));
  const auto message = static_cast<double>(profile->message());
  const int32_t node = cluster_.node_devices;
  // To the next stage, in the same node or another.
  const auto send_s = [&](int32_t s) {
    const bool leaves = node > 0 && s * plan.tp / node != (s + 1) * plan.tp / node;
    return send_seconds(cluster_, leaves ? std::max(node, plan.tp) : plan.tp, message);
  };
  std::vector<GenerationPass> stages;
  std::vector<int32_t> last;
  for (int32_t s = 0; s < plan.pp; ++s) {
    std::vector<int32_t> own = blocks_of(plan, s);
    GenerationPass stage;
    if (own == last) {
      stage = stages.back();
    } else {
      const ServingSeconds of = composed_seconds(*profile, own);
      stage.compute_s = of.compute + (is_prefill ? of.attention : 0);
      stage.cache_s = is_prefill ? 0 : of.attention;
      stage.collective_s = of.collectives;
    }
    stage.send_s = s + 1 < plan.pp ? send_s(s) : 0;
    stages.push_back(stage);
    last = std::move(own);
  }
  return stages;
}

Result<double> GenerationPrices::first_token_s(const GenerationPlan& plan) {
  TSR_ASSIGN_OR_RETURN(const std::vector<GenerationPass> stages, prefill(plan));
  const auto [all, slowest] = all_and_slowest(stages);
  return all + static_cast<double>(plan.parts() - 1) * slowest;
}

Result<double> GenerationPrices::token_s(const GenerationPlan& plan, int64_t sequences) {
  TSR_ASSIGN_OR_RETURN(const std::vector<GenerationPass> stages, decode(plan, sequences));
  const auto [all, slowest] = all_and_slowest(stages);
  return std::max(all, static_cast<double>(plan.groups()) * slowest);
}

// Pages hold whole texts; with a window, the visible part, and prompts in progress.
int64_t GenerationPrices::cached_positions(const GenerationPlan& plan, int64_t window) const {
  const int64_t page = usual_page_size(work_.context()), whole = divide_up(work_.context(), page);
  if (window == 0 || window >= work_.context()) return plan.batch * whole * page;
  const int64_t seen =
      plan.batch * (divide_up(window_, page) + 1) + plan.part() * divide_up(work_.prompt, page);
  return std::min(plan.batch * whole, seen) * page;
}

Result<GenerationMemory> GenerationPrices::stage_memory(const GenerationPlan& plan, int64_t sequences,
                                                        const std::vector<int32_t>& own) {
  GenerationMemory memory;
  memory.reserved = reserved_bytes(cluster_.kinds[0]);
  for (const bool is_prefill : {true, false}) {
    TSR_ASSIGN_OR_RETURN(const ServingProfile* const profile,
                         this->profile(plan.tp, is_prefill, is_prefill ? plan.part() : sequences));
    const ServingBytes bytes = composed_bytes(*profile, own);
    memory.parameters = bytes.parameters;
    if (bytes.run + bytes.inputs + bytes.logits > memory.transient + memory.logits)
      memory.transient = bytes.run + bytes.inputs, memory.logits = bytes.logits;
    if (is_prefill) continue;
    for (const int32_t block : own)
      for (const PositionBytes& it : profile->pages[static_cast<size_t>(block)])
        memory.caches += it.bytes * cached_positions(plan, it.window);
  }
  return memory;
}

Result<std::vector<GenerationMemory>> GenerationPrices::memory(const GenerationPlan& plan,
                                                               int64_t sequences) {
  if (plan.batch > kMostPositions / work_.context())
    return Status(StatusCode::kOutOfMemory, format("{} sequences of {} tokens are more than memory holds",
                                                   plan.batch, work_.context()));
  std::vector<GenerationMemory> stages;
  std::vector<int32_t> last;
  for (int32_t s = 0; s < plan.pp; ++s) {
    std::vector<int32_t> own = blocks_of(plan, s);
    if (own == last) {
      stages.push_back(stages.back());
    } else {
      TSR_ASSIGN_OR_RETURN(const GenerationMemory memory, stage_memory(plan, sequences, own));
      stages.push_back(memory);
    }
    last = std::move(own);
  }
  return stages;
}

Result<GenerationTime> GenerationPrices::time(const GenerationPlan& plan) {
  GenerationTime time;
  TSR_ASSIGN_OR_RETURN(time.first_token_s, first_token_s(plan));
  TSR_ASSIGN_OR_RETURN(time.token_s, token_s(plan, plan.group()));
  TSR_ASSIGN_OR_RETURN(const std::vector<GenerationPass> stages, decode(plan, plan.group()));
  for (const GenerationPass& stage : stages) {
    time.weights_s += stage.compute_s;
    time.cache_s += stage.cache_s;
    time.communication_s += stage.collective_s + stage.send_s;
  }
  time.request_s = time.first_token_s + static_cast<double>(work_.new_tokens - 1) * time.token_s;
  time.tokens_per_s = static_cast<double>(plan.dp * plan.batch * work_.new_tokens) / time.request_s;
  TSR_ASSIGN_OR_RETURN(const std::vector<GenerationMemory> memory, this->memory(plan, plan.group()));
  time.memory = *std::ranges::max_element(memory, {}, &GenerationMemory::total);
  time.kv_bytes = std::ranges::max(memory, {}, &GenerationMemory::caches).caches;
  return time;
}

}  // namespace tessera

// GenerationPrices: costs of text generation on a possibly absent cluster: prefill, then decode, one token
// of every sequence per step. From lowered serving steps of the model with few blocks (serving_profile.h).
//
// A replica is pp stages of tp devices and serves `batch` sequences; dp replicas run in parallel. Prefill sends a replica's
// prompts through its stages, `prefill_batch` at a time. Decode keeps as many groups of sequences in flight as there are
// stages; a group's next token begins when all groups have passed the slowest stage and the group itself has finished.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/graph.h"
#include "parallel/composition/serving_profile.h"
#include "parallel/pricing/absent_catalog.h"

namespace tessera {

// Tokens of all sequences of a replica; keeps page bytes far below 2^63.
inline constexpr int64_t kMostPositions = int64_t{1} << 36;

struct GenerationPlan {
  int32_t tp = 1, pp = 1, dp = 1;
  int64_t batch = 1;  // sequences per replica
  int64_t prefill_batch = 1;
  int64_t groups() const { return std::min<int64_t>(pp, batch); }
  int64_t group() const { return (batch + pp - 1) / pp; }  // size of the largest group
  int64_t parts() const { return (batch + part() - 1) / part(); }
  int64_t part() const { return std::min(prefill_batch, batch); }
  friend bool operator==(const GenerationPlan&, const GenerationPlan&) = default;
};

// "tp=4,pp=2,dp=1,batch=16,prefill=4".
std::string to_text(const GenerationPlan& plan);

struct GenerationWork {
  int64_t prompt = 512, new_tokens = 128;
  DType dtype = DType::kBF16;  // of weights, keys and values
  int64_t context() const { return prompt + new_tokens; }
};

// GenerationPass: a stage's work for one part of the prompts, or for one token of a group.
struct GenerationPass {
  double compute_s = 0;     // in decode mostly reading weights
  double cache_s = 0;       // attention over keys and values; for prompts counted as compute
  double collective_s = 0;  // over tp
  double send_s = 0;        // to the next stage
  double seconds() const { return compute_s + cache_s + collective_s + send_s; }
};

// GenerationMemory: bytes of a device of a stage.
struct GenerationMemory {
  int64_t parameters = 0, caches = 0, transient = 0, logits = 0, reserved = 0;
  int64_t total() const { return parameters + caches + transient + logits + reserved; }
};

struct GenerationTime {
  double first_token_s = 0;                                // reading the prompts
  double token_s = 0;                                      // further tokens, on average
  double request_s = 0;                                    // all tokens of a sequence
  double tokens_per_s = 0;                                 // new tokens, over all replicas
  double weights_s = 0, cache_s = 0, communication_s = 0;  // per token, over all stages
  GenerationMemory memory;                                 // of the fullest stage
  int64_t kv_bytes = 0;                                    // of the stage with the most
};

class GenerationPrices {
 public:
  // `forward`: the model in f32. Fails if it cannot be served.
  static Result<GenerationPrices> create(const Graph& forward, const Cluster& cluster,
                                         const GenerationWork& work);

  int32_t blocks() const { return static_cast<int32_t>(like_.size()); }
  int64_t parameters() const { return parameters_; }  // elements of the whole model
  const Cluster& cluster() const { return cluster_; }
  const GenerationWork& work() const { return work_; }
  // Device counts that divide every attention's heads, regardless of the
  // cluster. Lowering may fail for some, and with it the functions below.
  const std::vector<int32_t>& tensor_sizes() const { return tensor_sizes_; }

  // By stage: a part of the prompts; a token of a group.
  Result<std::vector<GenerationPass>> prefill(const GenerationPlan& plan) {
    return passes(plan, true, plan.part());
  }
  Result<std::vector<GenerationPass>> decode(const GenerationPlan& plan, int64_t sequences) {
    return passes(plan, false, sequences);
  }
  Result<double> first_token_s(const GenerationPlan& plan);
  // Seconds per token for groups of `sequences`; a lower bound if fewer than the plan's.
  Result<double> token_s(const GenerationPlan& plan, int64_t sequences);
  // By stage, likewise.
  Result<std::vector<GenerationMemory>> memory(const GenerationPlan& plan, int64_t sequences);
  Result<GenerationTime> time(const GenerationPlan& plan);

  // One token of each of `sequences`, or their prompts.
  Result<const ServingProfile*> profile(int32_t tp, bool is_prefill, int64_t sequences);
  Result<ServingProgram> lower(int32_t tp, bool is_prefill, int64_t sequences) const;
  int64_t profiles() const { return static_cast<int64_t>(profiles_.size()); }
  // The profile block for each of the stage's blocks, ends included.
  std::vector<int32_t> blocks_of(const GenerationPlan& plan, int32_t stage) const;

  // Pages of one attention: whole texts, or a window's.
  int64_t cached_positions(const GenerationPlan& plan, int64_t window) const;

 private:
  GenerationPrices(const Cluster& cluster, const GenerationWork& work)
      : cluster_(cluster), work_(work), catalog_(cluster.kinds[0]) {}

  ServedStep step_of(bool is_prefill, int64_t sequences) const;
  Result<std::vector<GenerationPass>> passes(const GenerationPlan& plan, bool is_prefill, int64_t sequences);
  Result<GenerationMemory> stage_memory(const GenerationPlan& plan, int64_t sequences,
                                        const std::vector<int32_t>& own);

  Cluster cluster_;
  GenerationWork work_;
  AbsentCatalog catalog_;
  Graph few_;
  std::vector<int32_t> like_;  // by block: the equal block of `few_`, from 0
  int64_t parameters_ = 0;
  int64_t window_ = 0;  // the largest window of any attention
  std::vector<int32_t> tensor_sizes_;
  std::map<std::tuple<int32_t, bool, int64_t>, Result<ServingProfile>> profiles_;
};

}  // namespace tessera

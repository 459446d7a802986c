// What generating text takes on a cluster that need not be present: prompts read at once (prefill), then one
// token of every sequence at a time (decode), with the keys and values of all that came before in memory.
//
// A replica is pp stages of tp devices and serves `batch` sequences; dp replicas work beside each other.
// Prefill sends a replica's prompts through its stages `prefill_batch` at a time; decode keeps as many groups
// of sequences under way as there are stages, and a group goes round no sooner than all have been through the
// slowest. Kernels are issued as one recorded launch, so the pace of
// the host (DeviceKind::issue_s) does not count.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "parallel/analytic/foreign_plan.h"

namespace tessera {

struct GeneratePlan {
  int32_t tp = 1, pp = 1, dp = 1;
  int64_t batch = 1;  // sequences of one replica
  int64_t prefill_batch = 1;
  friend bool operator==(const GeneratePlan&, const GeneratePlan&) = default;
};

struct GenerateWork {
  int64_t prompt = 512, new_tokens = 128;
  DType dtype = DType::kBF16;  // of weights, keys and values
};

struct GenerateTime {
  double first_token_s = 0;  // reading the prompts
  double token_s = 0;        // every further one, on average over the tokens
  double request_s = 0;      // all tokens of a sequence
  double tokens_per_s = 0;   // new ones, of all replicas
  double weights_s = 0, cache_s = 0,
         communication_s = 0;  // of token_s: products, reading keys and values, links
  int64_t kv_bytes = 0;        // at the end, of the device with most of them
  int64_t weight_bytes = 0;    // of the fullest device
  int64_t memory_bytes = 0;    // of it, with what is at work, and contexts
};

GenerateTime generate_time(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
                           const GeneratePlan& plan);

// What a stage's devices do for one part of the prompts, or for one token of a group of sequences.
struct StagePass {
  double compute_s = 0;     // products and what stands between them; in decode mostly reading weights
  double cache_s = 0;       // reading keys and values
  double collective_s = 0;  // over tp
  double send_s = 0;        // to the next stage
  double seconds() const { return compute_s + cache_s + collective_s + send_s; }
};

// All passes of a request, by stage: `parts` go through prefill one behind the other, `groups` go round in
// decode.
struct GeneratePasses {
  std::vector<StagePass> prefill, decode;
  int64_t parts = 1, groups = 1;
};
GeneratePasses generate_passes(const TransformerShape& model, const Cluster& cluster,
                               const GenerateWork& work, const GeneratePlan& plan);

// What a device of `stage` holds: caches at their end, work of a part of the prompts set aside beside them.
struct GenerateMemory {
  int64_t parameters = 0, caches = 0, transient = 0, logits = 0, reserved = 0;
  int64_t total() const { return parameters + caches + transient + logits + reserved; }
};
GenerateMemory generate_memory(const TransformerShape& model, const DeviceKind& kind,
                               const GenerateWork& work, const GeneratePlan& plan, int32_t stage);
// The stage that holds most.
int32_t fullest_stage(const TransformerShape& model, const DeviceKind& kind, const GenerateWork& work,
                      const GeneratePlan& plan);

// Refused: more parts than heads, stages than blocks, devices than there are; T shorter than the text.
Status check_generate_plan(const TransformerShape& model, const Cluster& cluster, const GenerateWork& work,
                           const GeneratePlan& plan);

// "tp=4,pp=2,dp=1,batch=16,prefill=4": sequences of a replica, and of them prompts read at a time.
std::string to_text(const GeneratePlan& plan);

}  // namespace tessera

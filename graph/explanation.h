// Explanation: the reasons for a plan and its costs; plain data. The same for plans
// of present devices (from the lowered program and its simulated run) and of absent
// hardware (from the composed step); a field of one of them alone is empty in the
// other. serialize/explanation_json.h writes it, explanation_page.h draws it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "graph/cluster.h"

namespace tessera {

// TimeShare: a share of the step on the device that finishes last. Shares add up to the step.
struct TimeShare {
  // "compute", "communication", "bubble", "waiting", "recompute", "offload", "update"; for a request also
  // "caches" (keys and values read)
  std::string cause;
  std::string axis;        // of communication: "dp", "tp", "dp+tp"; "pp" between stages
  double seconds = 0;      // exposed: with no overlap by a higher cause
  double hidden_s = 0;     // overlapped with another cause
  std::string phase = {};  // where text is generated: "prefill" or "decode"
};

// MemoryShare: a share of the fullest device's peak. Shares of one tier add up to that tier's bytes.
struct MemoryShare {
  // "parameters", "gradients", "optimizer", "caches", "activations", "logits", "gathered" (parameters, for
  // use), "communication", "transient", "workspace", "inputs", "reserved" (contexts), "unused" (between
  // buffers, and the needs of another entry of the program); "offloaded" (of a composed plan, on other tiers)
  std::string cause;
  int64_t bytes = 0;
  Tier tier = Tier::kDevice;
};

struct PeakBuffer {
  std::string name, cause;
  int64_t bytes = 0;
};

struct PeakMoment {
  std::string device;  // "device 0", "stage 3"
  std::string entry;   // "train_step"
  int64_t instruction = -1, instructions = 0;
  std::string what;                 // "matmul block.3.ffn"; "backward pass of micro-batch 0"
  std::vector<PeakBuffer> largest;  // live at that moment, largest first
};

// A run of consecutive blocks with the same decisions.
struct BlockDecision {
  std::string name;  // "block.0 to block.11", "embedding"
  int64_t count = 1;
  int32_t stage = 0;
  std::vector<std::pair<std::string, std::string>> ops;         // "matmul q.weight" -> "b over dp, n over tp"
  std::vector<std::pair<std::string, std::string>> parameters;  // "q.weight" -> "{[tp], []} over dp"
  int64_t recomputed = 0;  // activations of each block, or blocks where a block is the unit
  std::string recompute;   // "none", "full", "selective", "12 of 24 activations"
  int64_t offloaded = 0;   // activations of each block that leave the device
  int32_t chunks = 1;      // largest number of any operation
};

struct ExplainedTensor {
  std::string name, kind;  // "parameter", "gradient", "optimizer", "input", "constant", "activation"
  std::string type;        // "f32[768, 3072]", global
  std::string sharding;    // first layout: "{[dp], [tp]}"
  std::string tier;        // "device", "host", "file"
  int32_t stage = 0;
  int64_t bytes = 0;              // on the explained device
  int64_t first = -1, last = -1;  // instructions between which it is alive; -1: always
  std::string note;               // "recomputed", "kept gathered", "offloaded to host", "tied to ..."
  int64_t count = 1;              // number of such tensors (one for each block of a described model)
};

struct RunnerUp {
  std::string strategy;
  double step_s = 0;        // 0: never priced
  double loses_s = 0;       // slower than the plan by this
  int64_t bytes = 0;        // of its fullest device
  int64_t over_bytes = 0;   // beyond the limit; 0: it fits
  std::string why;          // reason for its refusal or excess; empty for one that is slower
  double tokens_per_s = 0;  // where text is generated
};

// TimelineSpan: a span in the timeline. `causes` and `names` index into the lists below.
struct TimelineSpan {
  int32_t row = 0, cause = 0, label = 0, micro_batch = 0;
  int64_t begin_ns = 0, end_ns = 0;
};
struct Timeline {
  std::vector<std::pair<std::string, std::string>> rows;  // device, stream: "device 0", "compute"
  std::vector<std::string> causes, labels;
  std::vector<TimelineSpan> spans;
  bool complete = true;  // false: later devices were left out, since there would be too many spans
};

// MemoryCurve: bytes by cause over a run of the explained device, stacked in the order of `causes`. One point
// for each instruction or pass, or the fullest of several consecutive ones where there are very many.
struct MemoryCurve {
  std::vector<std::string> causes;
  std::vector<int64_t> position;            // instruction, or nanosecond
  std::vector<std::vector<int64_t>> bytes;  // [cause][point]
  bool in_time = false;                     // positions are nanoseconds
};

// Serving: the figures of plans that generate text. The explanation's step is then a request, its prompts and all new tokens.
struct Serving {
  bool throughput = false;  // the objective; else latency
  int64_t prompt = 0, new_tokens = 0;
  int64_t sequences = 1, replicas = 1;  // at once, of all replicas
  int64_t prefill_batch = 1;            // prompts that a replica processes at a time
  double first_token_s = 0, token_s = 0, tokens_per_s = 0;
  double bound_tokens_per_s = 0;  // of throughput: no plan of the searched space exceeds it
};

struct Explanation {
  bool lowered = true;  // from a program; false: composed for hardware that is absent
  std::string subject;  // model or graph, for titles
  std::string cluster;  // "cpu:4", "dgx-a100-80gb:1024"
  std::string strategy, mesh;
  int64_t devices = 1, global_batch = 0, micro_batches = 1;
  double step_s = 0;
  double bound_s = 0, gap = -1;  // no plan of the searched space is faster than bound_s; gap -1: unknown
  std::optional<Serving> serving;
  std::vector<TimeShare> time;
  std::string critical;  // the device that finishes last: "device 2"
  std::vector<MemoryShare> memory;
  int64_t memory_bytes = 0;  // device tier: the arena, or everything on the device
  int64_t memory_limit = 0;  // 0: none
  PeakMoment peak;
  std::vector<int64_t> bytes_by_device;
  std::vector<BlockDecision> blocks;
  std::vector<ExplainedTensor> tensors;
  std::vector<RunnerUp> runners_up;
  std::vector<std::string> words;    // sentences: the meaning of the strategy, without terms of parallelism
  std::vector<std::string> reasons;  // sentences: the deciding costs, the differences
  Timeline timeline;
  MemoryCurve curve;
};

}  // namespace tessera

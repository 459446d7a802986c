// ServingProfile: the cost of one server step on a device, block by block, from the lowered serving graph
// (graph/transform/serving.h) of a model with few blocks. Steps of deeper models, in pipelines, are sums of blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/kernel_catalog.h"
#include "parallel/composition/step_profile.h"

namespace tessera {

// ServedStep: tokens of several sequences, each of which attends to `text` positions. A growing
// text counts with its average, since attention is linear in it, except beyond a window.
struct ServedStep {
  int64_t sequences = 1, tokens = 1, text = 1;  // tokens: per sequence
};

// ServingProgram: the step lowered for `tp` devices, as the program of the first.
struct ServingProgram {
  std::unique_ptr<Plan> plan;
  EntryLayout layout;
  RankProgram rank;
};

// `forward`: computed in `dtype` (with_mixed_precision), which its
// matrices are stored in. Fails as make_serving and apply_strategy do.
Result<ServingProgram> lower_serving(const Graph& forward, DType dtype, const ServedStep& step, int32_t tp,
                                     const KernelCatalog& catalog);

// PositionBytes: bytes that attention reads per text position: keys and values, or latent vectors.
struct PositionBytes {
  int64_t bytes = 0;
  int64_t window = 0;                 // visible positions; 0: all
  std::vector<TensorId> states = {};  // the states with these bytes
};

struct ServingSeconds {
  double compute = 0, attention = 0, collectives = 0;  // overlapping times count for the first of these
  double total() const { return compute + attention + collectives; }
};

struct ServingProfile {
  StepProfile step;  // parameters, constants, inputs, outputs, and live bytes of a step
  // By block of `step.map`, ends included.
  std::vector<ServingSeconds> seconds;
  std::vector<std::vector<PositionBytes>> pages;
  int64_t message() const { return step.forward_message; }  // bytes between blocks
};

Result<ServingProfile> profile_serving(const ServingProgram& program, const ServedStep& step,
                                       const Cluster& cluster);

// Seconds and bytes of a device that computes these profile blocks, in order.
ServingSeconds composed_seconds(const ServingProfile& profile, std::span<const int32_t> blocks);
struct ServingBytes {
  int64_t parameters = 0;  // with constants
  int64_t inputs = 0, logits = 0;
  int64_t run = 0;  // peak of the bytes that a step makes
};
ServingBytes composed_bytes(const ServingProfile& profile, std::span<const int32_t> blocks);

}  // namespace tessera

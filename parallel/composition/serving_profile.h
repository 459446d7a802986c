// ServingProfile: what one step of a server takes of a device, block by block, read off the lowered serving graph
// (graph/transform/serving.h) of a model with few blocks. Steps of deeper models, in pipelines, are sums of its blocks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "graph/base/result.h"
#include "graph/cluster.h"
#include "graph/kernel_catalog.h"
#include "parallel/composition/step_profile.h"

namespace tessera {

// One step: tokens of several sequences, each of which attends to `text` positions. Text that is longer with every token counts
// as its average: what attention computes and reads grows linearly with it, except beyond a window.
struct ServedStep {
  int64_t sequences = 1, tokens = 1, text = 1;  // tokens: of each sequence
};

// The step lowered for `tp` devices: the program of the first.
struct ServingProgram {
  std::unique_ptr<Plan> plan;
  EntryLayout layout;
  RankProgram rank;
};

// `forward`: computed in `dtype` (with_mixed_precision), in which its matrices are stored, too. Fails as make_serving and
// apply_strategy do.
Result<ServingProgram> lower_serving(const Graph& forward, DType dtype, const ServedStep& step, int32_t tp,
                                     const KernelCatalog& catalog);

// Bytes that attention reads of one position of its text: keys and values, or latent vectors.
struct PositionBytes {
  int64_t bytes = 0;
  int64_t window = 0;                 // positions that are seen; 0: all
  std::vector<TensorId> states = {};  // that hold them
};

struct ServingSeconds {
  double compute = 0, attention = 0, collectives = 0;  // in this order where they overlap
  double total() const { return compute + attention + collectives; }
};

struct ServingProfile {
  StepProfile step;  // parameters, constants, inputs and outputs, bytes alive in a step
  // By block of `step.map`, ends included.
  std::vector<ServingSeconds> seconds;
  std::vector<std::vector<PositionBytes>> pages;
  int64_t message() const { return step.forward_message; }  // between blocks
};

Result<ServingProfile> profile_serving(const ServingProgram& program, const ServedStep& step,
                                       const Cluster& cluster);

// Seconds and bytes of a device that computes these blocks of the profile, in order.
ServingSeconds composed_seconds(const ServingProfile& profile, std::span<const int32_t> blocks);
struct ServingBytes {
  int64_t parameters = 0;  // and constants
  int64_t inputs = 0, logits = 0;
  int64_t run = 0;  // most that is alive at once of what a step makes
};
ServingBytes composed_bytes(const ServingProfile& profile, std::span<const int32_t> blocks);

}  // namespace tessera

#include "engine/serving/scheduler/single_row.h"

#include <algorithm>
#include <string>
#include <variant>

#include "graph/transform/serving_rows.h"

namespace tessera {

namespace {

// Step sizes for prompts, in addition to 1. From 300 to 600 rows on, a GPU's matmuls
// take longer than reading the weights; the largest size is for GPUs. On a CPU 512
// rows read the weights a fourth as often as 128: 5 to 7 % of a prompt at 4 bits.
constexpr int64_t kPromptSteps[] = {16, 128, 512, 1024};
constexpr int64_t kLargestStepOnCores = 512;
constexpr int64_t kSnapshots = 4;  // of layers' states: for the next turns of a conversation

int64_t cache_bytes_read(const KernelDesc& desc, size_t operand, int64_t context) {
  const Shape& pages = desc.inputs[operand].shape;  // [P, S, KV, D]
  const int64_t slots = pages[0] * pages[1], window = attr_i64(desc.attrs, "window");
  const int64_t read = std::min(context, window > 0 ? window : context);
  return slots > 0 ? bytes(desc.inputs[operand]) / slots * read : 0;
}

}  // namespace

ServingSettings single_row_settings(const GeneratorSettings& settings, const Graph& forward, const DeviceSet& devices) {
  const bool is_on_cores = devices.cluster().shared_cores > 0;
  ServingSettings serving;
  serving.compute = settings.compute;
  serving.inference = settings.inference;
  serving.context = settings.context;
  serving.rows = 1;
  serving.has_state = carries_state(forward);
  serving.snapshots = serving.has_state ? kSnapshots : 0;
  serving.page_size = usual_page_size(settings.context);
  serving.pages = table_columns(serving_options(serving));
  serving.step_sizes = {1};
  for (const int64_t tokens : kPromptSteps)
    if (tokens <= settings.context && (tokens <= kLargestStepOnCores || !is_on_cores))
      serving.step_sizes.push_back(tokens);
  serving.step_tokens = serving.step_sizes.back();
  serving.scored_tokens = 0;
  serving.stores_sequences = false;
  serving.counts_last_token = false;
  serving.keeps_answers = false;
  serving.repairs_text = false;
  serving.bos_ends_text = true;
  return serving;
}

TokenReads count_token_reads(const Program& program, const ServingSettings& settings) {
  const std::string name = serving_entries(settings).front().name;
  TokenReads reads;
  for (const RankProgram& rank : program.ranks)
    for (const EntryPoint& entry : rank.entries) {
      if (entry.name != name) continue;
      for (const Instruction& instruction : entry.code) {
        const auto* kernel = std::get_if<KernelInst>(&instruction);
        if (kernel == nullptr) continue;
        const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
        const OpCost cost = desc.op->cost({desc.attrs, desc.inputs, desc.outputs, desc.factors});
        for (size_t i = 0; i < kernel->inputs.size(); ++i) {
          if (kernel->inputs[i].slot < 0) continue;
          const SlotKind kind = rank.slots[static_cast<size_t>(kernel->inputs[i].slot)].kind;
          if (kind == SlotKind::kParameter)
            reads.parameter_bytes += std::min(bytes(desc.inputs[i]), static_cast<int64_t>(cost.bytes_read));
          if (kind == SlotKind::kState && desc.op->pages.first >= 0 && !desc.op->pages.is_written)
            reads.cache_bytes += cache_bytes_read(desc, i, settings.context);
        }
      }
    }
  return reads;
}

}  // namespace tessera

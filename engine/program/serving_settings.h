// ServingSettings: how many sequences a server computes at once, and in which memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/compute_settings.h"
#include "engine/program/compile.h"
#include "graph/transform/serving.h"

namespace tessera {

class SharedModel;

struct ServingSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t context = 0;        // tokens of a sequence at most; 0: the model's, at most 2048
  int64_t longest = 0;        // finalized: the model's; 0: unknown
  int64_t rows = 16;          // sequences at once
  int64_t page_size = 64;     // tokens of a page
  int64_t pages = 0;          // 0: as many as `rows` sequences of `context` tokens have
  // Pages of layers with a window shorter than the context, in a pool of their own. 0: as many as all sequences need in
  // a step, and as many windows again for texts that ended; finalized, it is 0 where all layers share one pool.
  int64_t window_pages = 0;
  int64_t window = 0;           // finalized: the largest of these windows; 0: none
  bool has_full_layers = true;  // finalized: some layers see the whole context
  int64_t step_tokens = 256;  // of a step at most
  std::vector<int64_t> step_sizes;  // tokens that steps are padded to, ascending; none: powers of two
  bool shares_prefixes = true;
  bool speculates = false;         // tokens that are likely to come next are computed along ("speculation")
  int64_t max_drafts = 7;     // of a text in a step
  bool always_speculates = false;  // whether that pays or not
  std::shared_ptr<SharedModel> draft;  // which drafts them; null: they are what followed before in the text
  std::optional<DType> cache;  // of keys and values; nothing: as they are computed
  int64_t adapters = 0;        // adapters of requests in use at once; 0: none
  int64_t adapter_rank = 16;   // at most
  DType adapter_type = DType::kF32;  // of their factors on the devices: f32, bf16 or f16
  bool hidden = false;               // hidden states of tokens can be had
  int64_t scored_tokens =
      64;  // of a step at most, after which logits are wanted besides each sequence's last
  // A generator's one sequence (single_row.h) sets these otherwise.
  bool stores_sequences = true;   // pages can be saved and restored
  bool counts_last_token = true;  // the last token of a text, which is not computed, counts in the context
  bool keeps_answers = true;      // later texts find the pages of generated tokens, not of prompts alone
  bool repairs_text = true;       // bytes that are no UTF-8 become U+FFFD
  bool bos_ends_text = false;
};

// The settings with context, pages, window pages and what they depend on filled in; `longest`: the model's context, 0
// where unknown. kInvalidArgument for window pages of a model without windows, and for fewer than one sequence needs.
Result<ServingSettings> finalized(ServingSettings settings, const Graph& forward, int64_t longest);
// Window pages with which any one sequence can go on, in a pool of so many pages.
int64_t least_window_pages(const ServingSettings& settings, int64_t pages);
ServingOptions serving_options(const ServingSettings& settings);

// Tokens of a step at most.
int64_t serving_step_tokens(const ServingSettings& settings);

// Entry points "serve.N" for steps of up to N tokens, the smallest first; "serve.N.W" are for many wanted logits: one of
// the largest steps, or of each size where more tokens than usual are scored.
struct ServingEntry {
  std::string name;
  int64_t tokens = 0, wanted = 0;
};
std::vector<int64_t> serving_step_sizes(const ServingSettings& settings);  // ascending
std::vector<ServingEntry> serving_entries(const ServingSettings& settings);
// The first of them that has room for so many tokens and wanted logits.
const ServingEntry& serving_entry(std::span<const ServingEntry> entries, int64_t tokens, int64_t wanted);

// Entry points over positions of pages (graph/transform/serving_pages.h), of so many slots at once.
inline constexpr std::string_view kPageCopyEntry = "pages.copy", kPageReadEntry = "pages.read",
                                  kPageWriteEntry = "pages.write";
int64_t copied_slots(const ServingSettings& settings);
int64_t stored_slots(const ServingSettings& settings);  // read and written: they cross to the host

// The graph of a step. `settings` are finalized.
Result<Graph> serving_of(const Graph& forward, const ServingSettings& settings);
Result<CompiledProgram> compile_serving(const Graph& forward, const ServingSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);

}  // namespace tessera

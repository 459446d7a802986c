// ServingSettings: the batch and the memory of a server.
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

inline constexpr int64_t kMostSequences = 4096;  // at once

struct ServingSettings {
  ComputeSettings compute;
  InferenceSettings inference;
  int64_t context = 0;        // longest sequence in tokens; 0: the model's limit, at most 2048
  int64_t longest = 0;        // finalized: the model's limit; 0: unknown
  int64_t rows = 16;          // concurrent sequences
  int64_t page_size = kPageTokens;  // tokens of a page: 64; a generator's: usual_page_size(context)
  int64_t pages = 0;          // 0: enough for `rows` sequences of `context` tokens
  // Pages of layers whose window is shorter than the context, a pool of their own. 0: enough for all
  // sequences in a step, and as many windows again for ended texts. Finalized 0: one pool for all layers.
  int64_t window_pages = 0;
  int64_t window = 0;           // finalized: the largest window; 0: none
  bool has_full_layers = true;  // finalized: some layers see the whole context
  int64_t step_tokens = 256;  // tokens of a step, at most
  std::vector<int64_t> step_sizes;  // step sizes to pad to, ascending; empty: powers of two
  bool shares_prefixes = true;
  bool has_state = false;         // finalized: layers carry state from token to token
  int64_t snapshots = -1;         // copies of that state, for prefixes of texts; -1: as many as rows, at least 4. Finalized 0: none
  bool speculates = false;         // speculative decoding
  int64_t max_drafts = 7;     // per text and step
  bool always_speculates = false;  // even if it does not pay
  std::shared_ptr<SharedModel> draft;  // draft model; null: another source
  bool drafts_by_block = false;        // drafts of the model's own draft block (MTP); without it and a draft model: n-gram drafts
  std::optional<DType> cache;  // type of keys and values; nullopt: as computed
  int64_t adapters = 0;        // adapters in use at once; 0: none
  int64_t adapter_rank = 16;   // largest rank
  DType adapter_type = DType::kF32;  // type of adapter factors on the devices: f32, bf16 or f16
  bool adapter_head = false;         // adapters may change the head, too
  bool adapter_tables = false;       // and tables
  bool hidden = false;               // hidden states of tokens are available
  int64_t scored_tokens =
      64;  // rows of logits of a step in addition to one per sequence, at most
  // A generator's single sequence (single_row.h) sets these to false.
  bool stores_sequences = true;   // pages can be saved and restored
  bool counts_last_token = true;  // the last token, which is not computed, counts in the context
  bool keeps_answers = true;      // later texts may reuse pages of generated tokens
  bool repairs_text = true;       // invalid UTF-8 becomes U+FFFD
  bool bos_ends_text = false;
};

// Fills in context, pages, window pages and the settings derived from them. `longest`: the model's limit, 0
// if unknown. kInvalidArgument for window pages of a model without windows, or fewer than one sequence needs.
Result<ServingSettings> finalized(ServingSettings settings, const Graph& forward, int64_t longest);
// Smallest number of window pages that lets any sequence continue, for this number of pages.
int64_t least_window_pages(const ServingSettings& settings, int64_t pages);
// Pages that hold `tokens` tokens.
int64_t pages_of(const ServingSettings& settings, int64_t tokens);
// Window pages by default: a sequence's, for its window and as much again of ended texts; and a step's, for all sequences.
int64_t window_pages_of_sequence(const ServingSettings& settings);
int64_t window_pages_of_step(const ServingSettings& settings);
// Whether steps yield hidden states: for requests, or for a draft block.
inline bool yields_hidden(const ServingSettings& settings) { return settings.hidden || settings.drafts_by_block; }
ServingOptions serving_options(const ServingSettings& settings);

// Rows of state in addition to those of sequences: of snapshots, then, with speculation, one for each sequence, which keeps the
// state before its drafts.
int64_t spare_rows(const ServingSettings& settings);

// Tokens of a step, at most.
int64_t serving_step_tokens(const ServingSettings& settings);

// Entry points "serve.N" for steps of up to N tokens, ascending. "serve.N.W" have more rows
// of logits: one of the largest step, or one per size when more tokens than usual are scored.
struct ServingEntry {
  std::string name;
  int64_t tokens = 0, wanted = 0;
};
std::vector<int64_t> serving_step_sizes(const ServingSettings& settings);  // ascending
std::vector<ServingEntry> serving_entries(const ServingSettings& settings);
// The smallest entry with room for these tokens and rows of logits.
const ServingEntry& serving_entry(std::span<const ServingEntry> entries, int64_t tokens, int64_t wanted);

// Entry points that copy, read and write positions of pages (graph/transform/serving_pages.h).
inline constexpr std::string_view kPageCopyEntry = "pages.copy", kPageReadEntry = "pages.read",
                                  kPageWriteEntry = "pages.write";
// Entry point that copies rows of state (graph/transform/serving_rows.h), so many at once.
inline constexpr std::string_view kRowCopyEntry = "rows.copy";
inline constexpr int64_t kCopiedRows = 8;
int64_t copied_slots(const ServingSettings& settings);
int64_t stored_slots(const ServingSettings& settings);  // slots read or written at once, through host memory

// The graph of a step. `settings` are finalized.
Result<Graph> serving_of(const Graph& forward, const ServingSettings& settings);
Result<CompiledProgram> compile_serving(const Graph& forward, const ServingSettings& settings,
                                        const std::shared_ptr<DeviceSet>& devices,
                                        const TrainedPlan* along = nullptr);

}  // namespace tessera

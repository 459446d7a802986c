// Graph -> graph: a forward language model becomes a step of a server: tokens of any sequences
// in one launch, keys and values in pages shared by sequences ("PagedAttention", Kwon et al.,
// 2023; steps of mixed prompts and single tokens: "Orca", Yu et al., 2022). Works on any model
// whose ops that mix tokens are causal and have a serving form, and whose positions come from input "positions".
#pragma once

#include <optional>
#include <set>
#include <string>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

struct ServingOptions {
  int64_t pages = 0;      // P: of keys and values, each of every attention
  int64_t page_size = 0;  // S: positions of a page
  int64_t rows = 0;       // R: sequences at once
  int64_t context = 0;    // positions of a sequence at most
  std::optional<DType>
      cache;  // of keys and values: bf16 or f16 where they are f32, q8_0; nullopt: the model's own
  // Low-rank adapters by token (row_adapters.h): their number at once, their largest rank, and the type of their factors.
  int64_t adapter_slots = 0;  // 0: none
  int64_t adapter_rank = 0;
  DType adapter_type = DType::kF32;
  bool adapter_head = false;    // the head has them too, not the matrices of the blocks alone
  bool adapter_tables = false;  // and the tables
  bool hidden = false;  // hidden states of all tokens are an output, too
  // Pages of layers whose window is shorter than the context; 0: they share the pages of all others.
  int64_t window_pages = 0;
  int64_t spare_rows = 0;  // rows of state, where layers carry one, in addition to those of sequences
};

inline constexpr int64_t kPageTokens = 64;  // positions of a page, unless a context is shorter
// kPageTokens, or the multiple of 16 that holds a shorter context.
int64_t usual_page_size(int64_t context);
// The largest number of pages of a row: the columns of the table.
int64_t table_columns(const ServingOptions& options);

// Inputs: "tokens" i32[B, N]; for each token "row" i32[B, N] (of the table; -1: padding), "positions" i32[B, N] and
// "slot" i32[B, N] (where its keys and values go: page * S + place in the page; -1: nowhere); "page_table" i32[R, M];
// "wanted" i32[W] (numbers b * N + n of tokens whose logits are wanted; -1: none). A step writes the keys and values of all
// its tokens before any attends. Attention nodes become kv_write + attention_paged with state "<scope>.k_pages" and
// "<scope>.v_pages" [P, S, KV, D], which attentions of the same keys and values share; those of latent_attention.h with state
// "<scope>.latent_pages" [P, S, 1, KA + R] alone, of latent vectors and the rotated part of keys, unless tokens have adapters of
// the weight that makes keys and values of them.
// The graph of a draft block (draft_block.h) has one more input, "draft_hidden" [B, N, C]: a hidden state for each token.
// With adapters also "adapter" i32[B, N] (the slot of each token's adapter; -1: none), and states with the factors: of the
// head, which only requested tokens have, those of these tokens.
// Recurrent ops read and update a row of state for each sequence, "<scope>.conv_rows" and "<scope>.scan_rows" [R, ...], by
// "row": a token at position 0 starts from zeros, and tokens of one row come in the order of their positions.
// Outputs: "logits" [W, V], in f32 where the model computes in 16 bits; with `hidden` also "hidden" f32[B, N, C], the hidden
// states of all tokens (find_hidden of embedding.h).
// With window_pages the attentions with a window shorter than the context have inputs of their own in place of "slot" and
// "page_table": "window_slot" i32[B, N] and "window_page_table" i32[R, M], and as many pages. Inputs that nothing reads are
// left out.
// Values that no later token reads are computed for the requested tokens only (wanted_rows.h).
// Symbols left: B, N and W. What a token yields depends on its own sequence alone.
// Rotations with two rows of factors (LongRoPE) take the first where `context` is at most rope_switch. Else a server of one
// row has an input "rope_row" i32[1]: 1 or 2, the row of factors for all tokens of the step. A sequence that grows beyond the
// switch must be computed again from its first token: keys in its pages were rotated by the first row.
// kInvalidArgument: a cache of q8_0 where D, or KA + R, is not a multiple of 32.
// kUnsupported: several rows, where `context` is beyond rope_switch.
Result<Graph> make_serving(const Graph& forward, const ServingOptions& options);

// Returns the tokens of a sequence beyond which it is rotated by the second row of factors; 0: at most one row.
int64_t rope_switch(const Graph& forward);
// Returns the largest window shorter than `context` of all attentions; 0: none.
int64_t paged_window(const Graph& forward, int64_t context);
// Returns whether an attention sees the whole context.
bool has_full_attention(const Graph& forward, int64_t context);
// Names of the states in window pages, of a graph of make_serving.
std::set<std::string> window_states(const Graph& serving);
// Names of the states with a row for each sequence, which are in no pages; likewise.
std::set<std::string> row_states(const Graph& serving);

}  // namespace tessera

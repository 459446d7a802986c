// Low-rank adapters of many tenants, trained side by side over one frozen model: the factors of S adapters are stacked
// in parameters [S, rank, K] and [S, rank, N], named as a server's slots are (row_adapters.h), and each row of a batch names its slot,
//   y = x W + (f (x A_s)) B_s,   f = alpha / rank of the row's adapter.
// with x after the row's own dropout where there is room for it (row_dropout), as is that of the model itself.
// Rows of one slot are added to its gradient in their order, whatever else the batch has (graph/ops/adapter_outer.cc), and an
// update is of one slot alone, so that adapters get the bits that each would have without the others.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// Inputs of such graphs: each token's slot, i32 [B, T] (-1: no adapter), and its factor, f32 [B, T]; the slot of an
// update, i32 []. Of accumulations also: the factor on each row's loss [B], with output kRowLosses [B], the sums of the rows' losses.
inline constexpr std::string_view kAdapterInput = "adapter", kAdapterFactor = "adapter_factor",
                                  kUpdatedSlot = "slot", kRowScale = "row_scale", kRowLosses = "row_losses";
// Inputs of dropout, where there is some: each row's seed and number, i64 [B], and the rate of its adapter, f64 [B].
inline constexpr std::string_view kDropoutSeed = "dropout_seed", kDropoutRow = "dropout_row", kDropoutRate = "dropout_rate";

struct AdapterSlotOptions {
  int64_t slots = 0, rank = 16;
  bool dropout = false;  // room for dropout of the adapters
};

// The graph of a language model with slots for adapters of `weights`; all other parameters are frozen. A model's auxiliary
// loss, a mean over rows of different adapters, is not an output any more. kInvalidArgument for weights that are not of matmuls alone, a rank above a
// weight's, and weights whose products, or dropouts, are not of the tokens [B, T, K].
Result<Graph> with_adapter_slots(const Graph& forward, std::span<const TensorId> weights,
                                 const AdapterSlotOptions& options);

bool has_adapter_slots(const Graph& graph);

// The sum of a gradient state and the gradient that backward nodes compute, continued from the state, so that batches and
// micro-batches are added row by row. kNoTensor for gradients of another form. Changes the phase of nodes added later.
Result<TensorId> add_slot_gradient(Graph& graph, TensorId state, TensorId gradient);

// The update (make_update) of one slot, that of input kUpdatedSlot: the same nodes over the slot's values alone. kUnsupported for
// optimizers with state that has no slots.
Result<Graph> with_slot_update(const Graph& update);

}  // namespace tessera

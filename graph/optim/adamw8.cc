// AdamW with moments in 8 bits (Dettmers et al., ICLR 2022): state "<parameter>.m" and "<parameter>.v" in u8, with
// "<parameter>.m_absmax" and "<parameter>.v_absmax" a block. Small parameters keep AdamW's f32, as the paper's library does.
#include "graph/optim/optimizers.h"

namespace tessera {

namespace {

constexpr int64_t kLeastElements = 4096;

// Returns the widest block that divides the last dim; 0: none.
int64_t block_of(const Shape& shape) {
  if (shape.rank() == 0) return 0;
  for (const int64_t block : {256, 128, 64})
    if (shape[shape.rank() - 1] % block == 0) return block;
  return 0;
}

Status emit_adamw8(const OptimizerContext& context, const std::map<std::string, double>& hyper) {
  const Shape shape = context.graph.type(context.parameter).shape;
  const int64_t block = block_of(shape);
  if (block == 0 || shape.elements() < kLeastElements) return emit_adamw(context, hyper);
  Shape blocks;
  for (int dim = 0; dim < shape.rank(); ++dim)
    blocks.push_back(dim + 1 < shape.rank() ? shape[dim] : shape[dim] / block);
  TSR_ASSIGN_OR_RETURN(const TensorId m, add_optimizer_state(context, "m", {DType::kU8, shape}));
  TSR_ASSIGN_OR_RETURN(const TensorId v, add_optimizer_state(context, "v", {DType::kU8, shape}));
  TSR_ASSIGN_OR_RETURN(const TensorId m_absmax, add_optimizer_state(context, "m_absmax", blocks));
  TSR_ASSIGN_OR_RETURN(const TensorId v_absmax, add_optimizer_state(context, "v_absmax", blocks));
  const TensorId state[] = {m, v, m_absmax, v_absmax};
  const TensorId scalars[] = {context.lr, context.step};
  return emit_update(context, "adamw8_update", state, scalars, hyper);
}

constexpr std::string_view kAdamw8ForeignNames[] = {"adam8bit",       "adamw8bit",        "adamw_8bit",
                                                    "adamw_bnb_8bit", "paged_adamw_8bit", "adamw_torch_8bit"};

}  // namespace

extern const OptimizerDef kAdamw8 = {.name = "adamw8",
                                     .settings = kAdamwSettings,
                                     .emit = emit_adamw8,
                                     .foreign_names = kAdamw8ForeignNames,
                                     .has_step_settings = true};

}  // namespace tessera

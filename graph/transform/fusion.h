// Graph -> graph: fusion: the output head and the losses of tokens as one op that never holds the logits
// (linear_cross_entropy, linear_token_losses), and gelu's gradient in the matmul before it.
#pragma once

#include "graph/base/result.h"
#include "graph/graph.h"

namespace tessera {

// A forward graph whose losses of tokens are those of `add_cross_entropy` on logits = matmul(x, w), w stored
// [V, C], without bias. Where a scaled sum is their only reader (add_token_loss), linear_cross_entropy
// computes that sum: an evaluation computes only the loss, a training step (make_training_step) loss and
// gradient in one op. Other losses (preference_loss.h, token_loss.h) read those of linear_token_losses,
// whose gradient computes the logits again. kUnsupported, with the reason, for another head.
Result<Graph> with_fused_loss(const Graph& forward_with_loss);

// A differentiated graph in which linear_cross_entropy and its gradient are one
// node, of the forward phase: the gradient also computes the loss, from the same
// logits. Unchanged where the incoming gradient depends on the loss itself.
Result<Graph> with_fused_loss_gradient(const Graph& step);

// A differentiated graph in which every gelu_grad of the tanh form, of a matmul that nothing else reads, is
// one matmul_gelu_grad: the matmul's result is not stored, nor rounded before it is multiplied. It pays where
// a library has that epilogue (cuBLASLt, f16 and bf16). Matmuls that may multiply in TF32, which are f32,
// stay as they are.
Result<Graph> with_fused_gelu_gradients(const Graph& step);

}  // namespace tessera

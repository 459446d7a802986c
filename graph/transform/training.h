// Graph -> graph: a forward model becomes a whole training step, or its evaluation.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/graph.h"
#include "graph/optim/optimizer.h"

namespace tessera {

// Appends the token loss of a language model: inputs "labels" i32[B, T] (-1: ignored) and "loss_scale" f32[] (1 /
// valid tokens of the global batch, counted by the feeder), output "loss" f32[] = loss_scale * sum of token losses.
// A model's own "aux_loss" f32[] (the mean over sequences, so that it is exact under micro-batches) is added to it;
// the loss without it then is output "token_loss".
// Vocabulary-parallel by construction: its phases (max, sum of exponentials, picked logit) are separate nodes.
// `weighted`: each loss is multiplied by input "weights" [B, T], whose sum over labels the feeder takes for their number.
Status add_token_loss(Graph& graph, bool weighted = false);

// LossScaling: the loss is multiplied by a power of two before it is differentiated, so that small gradients
// of f16 do not underflow, and gradients are divided by it where they are used: without overflow it changes
// no bit. A gradient that is not finite skips the step and halves the factor; `interval` steps without one
// double it. The devices decide all of that, in state "loss_scaling.offset" and "loss_scaling.good".
struct LossScaling {
  double initial = 0;  // a power of two; 0: the loss is not scaled
  int64_t interval = 2000;
};

// TrainingOptions. A model with a loss of its own already has output "loss": nothing is added.
struct TrainingOptions {
  OptimizerOptions optimizer;
  double clip_norm = 0;  // bound on the global gradient norm; 0: none
  LossScaling loss_scaling;
  bool fp8_matmuls = false;  // linear layers of blocks in 8 bits (graph/transform/precision.h)
  bool fused_gelu_gradients = false;  // gradients through gelu (graph/transform/fusion.h)
  // make_update: the optimizer's settings and the bound are inputs of each step, step_setting_input, where the optimizer
  // takes settings of a step (OptimizerDef::has_step_settings; else the bound alone).
  bool step_settings = false;
};

// The input with a setting of one step, f64 []: of "clip_norm", or a setting of the optimizer.
std::string step_setting_input(std::string_view setting);
// A bound on the gradient norm as updates take it: 0, no bound, is more than any finite norm of f32.
double norm_bound(double clip_norm);

// forward (+ loss) -> forward, backward, update. Adds inputs "lr" f32[] and "step" f32[] (1 for the first
// step), optimizer state "<parameter>.<slot>", outputs "loss" and "grad_norm" (before clipping), updates.
// Keeps the outputs of log probabilities (preference_loss.h), drops the others and the nodes that only they
// need. The norm is always computed: a step whose
// gradient is not finite changes nothing. The order of the model's nodes does not matter (canonical_order.h).
Result<Graph> make_training_step(const Graph& forward_with_loss, const TrainingOptions& options);

// forward + loss only, without dropout; output "loss": of the tokens, without a model's auxiliary loss. The
// matmuls are those of the evaluated step.
Result<Graph> make_evaluation(const Graph& forward_with_loss, bool fp8_matmuls = false);

// A step in parts: any number of accumulations, and an update. Gradients wait
// between them in state "<parameter>.grad", of the parameter's type before it
// is stored in bf16, summed over the batch and placed as optimizer state is.

// forward (+ loss) -> forward, backward: adds the gradients to that state. Outputs "loss", and log probabilities where the
// forward graph has them (token_loss.h, preference_loss.h). A tensor named kConstantOfLoss there is a constant to
// differentiation.
Result<Graph> make_accumulation(const Graph& forward_with_loss, const TrainingOptions& options);

// The update of make_training_step from those gradients alone, which are 0
// afterwards whether or not their norm is finite. Inputs "lr" and "step" as there,
// and "norm_offset": 0, or not finite to skip the update. Output "grad_norm".
Result<Graph> make_update(const Graph& forward_with_loss, const TrainingOptions& options);

// forward only, without dropout; output "logprobs". The matmuls are those of the evaluated step.
Result<Graph> make_forward(const Graph& forward_with_logprobs, bool fp8_matmuls = false);

// The name of that state.
std::string gradient_state_name(std::string_view parameter);

}  // namespace tessera

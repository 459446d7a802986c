// OpDef: the one definition of an op. graph/ops/<op>.cc holds, in this order: formula and shapes, attributes, infer,
// vjp, sharding, cost, the OpDef constant. `infer` and `cost` are evaluated on local shapes, so there is no second
// formula for the sharded case.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "graph/attr.h"
#include "graph/base/result.h"
#include "graph/base/shape.h"
#include "graph/op_columns.h"
#include "graph/sharding_rule.h"

namespace tessera {

class VjpBuilder;    // graph/autodiff.h
class PhaseBuilder;  // graph/phases.h
class ServingBuilder;  // graph/serving_builder.h

// FactorView: this shard's part of a factor: up to two ranges [begin, end) of a
// global extent (two for zig-zag orders). Ops whose result depends on position
// (causal mask, vocabulary offset, dropout's logical index) read it from here.
struct FactorView {
  char name = '?';
  int64_t global_extent = 0;
  int64_t unit = 1;
  int32_t range_count = 1;
  int64_t begin[2] = {0, 0};
  int64_t end[2] = {0, 0};
};

// OpView: one instance of an op on local operands. `factors` follows the order of the rule; it is empty
// inside `sharding`.
struct OpView {
  std::span<const Attr> attrs;
  std::span<const TensorType> inputs;
  std::span<const TensorType> outputs;
  std::span<const FactorView> factors;
};

struct OpCost {
  double flops = 0;        // multiply and add count as two
  double bytes_read = 0;   // from memory, each operand once
  double bytes_written = 0;
};

struct OpDef {
  std::string_view name;  // stable: stored in model files
  int32_t version = 1;
  std::span<const AttrSpec> attrs = {};

  // Operand types (global or local, symbols allowed) ->
  // result types, or an error that names the mismatch.
  Result<std::vector<TensorType>> (*infer)(std::span<const TensorType> inputs, std::span<const Attr> attrs) = nullptr;

  Status (*vjp)(VjpBuilder& builder) = nullptr;  // null: not differentiable

  ShardingRule (*sharding)(const OpView& view) = nullptr;  // extents are filled in by the caller (bind_extents)
  OpCost (*cost)(const OpView& view) = nullptr;

  // The same function as a chain of ops in which the factors of kind kPhased are ordinary kReduce factors: local
  // statistics, merge, finish (ALGEBRA rule 8). A plan that splits such a factor is lowered through it. Null: none.
  Status (*phases)(PhaseBuilder& builder) = nullptr;

  // Name of the op that merges the results of two ranges of a factor that
  // the outputs lack: its inputs are the outputs of the first, then of the
  // second. Empty: they are added up. attention over kv: "attention_merge".
  std::string_view chunk_merge = {};

  // in_place[i] = input whose buffer output i may reuse when nothing else reads it; empty for none. Kernels
  // of such an op must be correct both in place and out of place.
  std::span<const int> in_place = {};

  // Inputs of which only the shape is used (the table of embedding_grad): the kernel receives no buffer for
  // them (null), and they are not resharded, gathered or kept alive. Their local extents follow from the rule.
  std::span<const int> shape_only = {};

  // Whether a result computed from a part of the batch serves that part (a scale that codes are rounded by).
  // Then each micro-batch has its own; a maximum over the batch is otherwise refused
  // (parallel/sharding/batch_cut.h).
  bool any_part = false;

  // The op whose measured times stand in for this one's, where
  // it has none: factors of equal names have equal meanings.
  std::string_view priced_as = {};

  // Output 0 is input 0's bytes under another shape (split_dim, merge_dims): lowering shares the buffer and launches
  // nothing.
  bool is_view = false;

  // The op's name in files and calls from before a rename, which `find_op` still finds. Fingerprints hash it in place
  // of `name`, so that plans, choices and prices made before stay valid. Empty: never renamed.
  std::string_view former_name = {};

  // --- what transforms, lowering and engine ask: graph/op_columns.h

  WeightOperand weight = {};
  IndexOperand index = {};
  ContextOperands context = {};
  PageOperands pages = {};
  LossOperands loss = {};
  FusedForms fused = {};
  Algebra algebra = Algebra::kNone;

  // The op in a step of the serving engine, whose tokens belong to many sequences. Null: computed of each token by itself.
  Status (*serve)(ServingBuilder& builder) = nullptr;

  // The operand [R, ...] that holds state of sequences, a row for each, which the op reads and updates in place. -1: none.
  int row_state = -1;

  // The operand that holds a running sum over calls, to which the op adds: over micro-batches the result of one call is the
  // operand of the next. -1: none.
  int sums_into = -1;

  // Output 0 is input 0 in the element type of attribute dtype.
  bool is_cast = false;

  // A function of each element that products apply as attribute activation, by this op's name with default attributes.
  bool is_activation = false;

  // Input 0 with noise in training, else as it is: attributes p and salt; other inputs are of the noise alone.
  bool is_noise = false;

  // The result is the probabilities of alternatives: the product behind it is a gate, which is never computed in 8 bits.
  bool is_gate = false;

  // The input whose largest values choose experts; attribute capacity bounds the tokens of an expert (0: no bound).
  int routing_scores = -1;

  // An optional input that is part of the model and never trains.
  int constant_input = -1;

  // Nodes of equal inputs and attributes are worth merging: their result lives throughout the step.
  bool is_shared = false;

  // Flops are products of matrices, at the rate of matrix units.
  bool multiplies_matrices = false;

  // Makes a parameter's new value, from its gradient.
  bool is_update = false;

  // The update in bf16 that rounds by random bits: the same inputs, then a seed; attribute salt.
  std::string_view stochastic_op = {};

  // The op that computes this product of 8-bit codes: inputs with codes in place of values, then a scale each.
  std::string_view scaled_op = {};

  // The result of a gradient that equals result 0 of its forward node, whose inputs are its first ones: a step that has both
  // needs the gradient alone.
  int forward_result = -1;
};

// Whether all attributes have their defaults.
bool has_default_attrs(const OpDef& op, std::span<const Attr> attrs);

// The operand of a node from which on documents are numbered (ContextOperands::segments), there or not: a bias, by attribute
// bias = 1, is before it. -1: the op keeps none apart.
int first_segment(const OpDef& op, std::span<const Attr> attrs);

// Whether fingerprints leave the attribute out: a late one with its default.
bool is_implied(const OpDef& op, const Attr& attr);

// Sets `extent` of every factor of `rule` from operand shapes (products included); reports a mismatch.
// Symbols are extents too: equal symbols match. The `unit` of a factor that block types pack becomes a
// multiple of their blocks.
Status bind_extents(ShardingRule& rule, std::span<const TensorType> inputs, std::span<const TensorType> outputs);

// The table in graph/ops/registry.cc.
const OpDef* find_op(std::string_view name);  // by its present or former name; null when unknown
std::span<const OpDef* const> all_ops();      // sorted by name

}  // namespace tessera

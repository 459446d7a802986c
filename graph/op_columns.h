// Columns of OpDef that transforms, lowering and engine read in place of an op's name. Each states a property that makes
// their rewrite valid. An op declares the ones that hold, next to its formula; the defaults state nothing. Operands are
// numbered from 0; -1 is none.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "graph/attr.h"

namespace tessera {

// WeightUse: what is known of an op's weight, beyond the types that it may have.
enum class WeightUse : uint8_t {
  kOther,
  // y = x w + bias: x [..., K] is operand 0; w is [K, N], or [N, K] with attribute trans_w = 1; bias [N] is operand 2,
  // optional. Attribute activation, where the op has one, is applied last; result 1 is then the value before it.
  // Adapters of trained models and of served tokens, importance matrices and weight factors apply.
  kProduct,
  kRows,  // rows of a table [V, C], numbered by `IndexOperand`; adapters of trained models apply
};

// StoredRead: whether an op reads its weight in f16, bf16 or blocks along the last dim, next to wider activations.
enum class StoredRead : uint8_t {
  kRefused,
  kAllowed,  // it can, but gains nothing: a weight without other readers keeps its type
  kWanted,   // along the blocks: weights are stored narrow for such readers
};

// WeightOperand: the operand that holds a parameter of the model.
struct WeightOperand {
  int operand = -1;
  WeightUse use = WeightUse::kOther;
  StoredRead (*stored_read)(size_t operand_count, std::span<const Attr> attrs) = nullptr;  // null: kRefused
  // The op that reads the stored weight: the same operands, the attributes that both ops have, and the activation as a
  // node of its own. Null: this op, with its result cast where the type follows the weight's.
  std::string_view (*stored_op)(std::span<const Attr> attrs) = nullptr;
  // For an op that reads stored weights alone: the op that it is the stored form of, and that op's trans_w.
  std::string_view logical_op = {};
  int64_t logical_trans_w = 0;
};

// IndexOperand: an integer operand whose values number the rows of a dim of operand `into`. What is fed to it is checked.
struct IndexOperand {
  int operand = -1;
  int into = -1;
  bool last_dim = false;  // else the first
  bool is_label = false;  // -1 leaves a place out of the loss
};

// ContextOperands: an op whose result for one token depends on other tokens of the sequence.
struct ContextOperands {
  bool mixes_tokens = false;
  // [B, S, KV, D]: a row for each token of the context. Attribute window bounds the tokens that are seen; causal = 0 shows
  // those that follow.
  int keys = -1, values = -1;
  // Optional last operands, numbers of the documents of a row, which are kept apart: of queries and of keys, or of tokens
  // alone. `first_segment` (op_def.h) gives the first of them.
  int segments = -1;  // the first, in a node without the operands that attributes add
  int segment_count = 2;
  int (*added_operands)(std::span<const Attr> attrs) = nullptr;  // before the segments; null: 1 with attribute bias = 1
};

// PageOperands: operands that are pages of keys and values: from `first` on, all except the last `behind`.
struct PageOperands {
  int first = -1;
  int behind = 0;
  bool is_written = false;  // else read
};

// Algebra: the op's value as a formula of operands x, y, for rewrites that are valid by the formula.
enum class Algebra : uint8_t {
  kNone,
  kSum,            // x + y, of one shape
  kDifference,     // x - y, of one shape
  kProduct,        // x * y, element by element
  kQuotient,       // x / y, element by element
  kBiased,         // x + y, y repeated along the leading dims
  kMultiple,       // x times attribute factor
  kScaled,         // x times the scalar y
  kTotal,          // the sum over dims `axes` of x
  kColumnSums,     // the sum over all dims of x except the last
  kSumOfSquares,   // of all elements of x, a scalar
  kSlice,          // [begin, end) of dim `dim` of x
  kConcatenation,  // of all operands, along dim `dim`
  kRepetition,     // x repeated along dims `axes`
  kSplitDim,       // dim `dim` of x as two dims
};

// LossHead: a loss of tokens that computes their logits itself.
enum class LossHead : uint8_t {
  kNone,
  kSum,     // output head and scaled sum of the losses in one op
  kTokens,  // output head and losses in one op
};

// LossOperands: an op that makes losses of tokens by labels, or their gradient.
struct LossOperands {
  LossHead head = LossHead::kNone;
  bool is_gradient = false;
  // For a loss of logits (operand 0) and labels (operand 1): the ops that make operands 2, 3, ... from them.
  std::span<const std::string_view> statistics = {};
  int row_max = -1, picked = -1;  // operands: the largest logit, and the label's
};

// FusedForms: ops that compute this op together with a neighbour.
struct FusedForms {
  std::string_view with_addend = {};     // operands x, w, addend, bias: the addend is added to this op's result
  std::string_view with_sum = {};        // operand 0 is a sum: both addends in its place; result 0 is the sum
  std::string_view with_product = {};    // operand 1 is a product x w: operands x, w, operand 0
  std::string_view joint_gradient = {};  // a norm's gradients of input and weight; then the sum with an addend
  bool is_weight_gradient = false;       // the weight's half: operands of the input's half without w, its operand 2
};

}  // namespace tessera

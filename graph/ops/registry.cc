// The table of ops: one declaration and one row an op.
#include <algorithm>

#include "graph/op_def.h"

namespace tessera {

extern const OpDef kAdamwUpdate;
extern const OpDef kAdd;
extern const OpDef kAddBias;
extern const OpDef kBroadcast;
extern const OpDef kCast;
extern const OpDef kClipScale;
extern const OpDef kConcat;
extern const OpDef kDiv;
extern const OpDef kDropout;
extern const OpDef kExp;
extern const OpDef kGelu;
extern const OpDef kGeluGrad;
extern const OpDef kLog;
extern const OpDef kMatmul;
extern const OpDef kMatmulWeightGrad;
extern const OpDef kMergeDims;
extern const OpDef kMul;
extern const OpDef kNeg;
extern const OpDef kPad;
extern const OpDef kReduceMax;
extern const OpDef kReduceMean;
extern const OpDef kReduceSum;
extern const OpDef kRelu;
extern const OpDef kReluGrad;
extern const OpDef kScale;
extern const OpDef kScaleBy;
extern const OpDef kSgdUpdate;
extern const OpDef kSigmoid;
extern const OpDef kSigmoidGrad;
extern const OpDef kSilu;
extern const OpDef kSiluGrad;
extern const OpDef kSlice;
extern const OpDef kSplitDim;
extern const OpDef kSqrt;
extern const OpDef kSquare;
extern const OpDef kSub;
extern const OpDef kSumLeading;
extern const OpDef kSumSquares;
extern const OpDef kSwiglu;
extern const OpDef kSwigluGrad;
extern const OpDef kTanh;
extern const OpDef kTanhGrad;
extern const OpDef kTranspose;
extern const OpDef kZerosLike;

namespace {
// Sorted by name: find_op searches by halves.
std::span<const OpDef* const> table() {
  // clang-format off: one row a line
  static const OpDef* const kOps[] = {
      &kAdamwUpdate, &kAdd,        &kAddBias,          &kBroadcast,  &kCast,        &kClipScale,
      &kConcat,      &kDiv,        &kDropout,          &kExp,        &kGelu,        &kGeluGrad,
      &kLog,         &kMatmul,     &kMatmulWeightGrad, &kMergeDims,  &kMul,         &kNeg,
      &kPad,         &kReduceMax,  &kReduceMean,       &kReduceSum,  &kRelu,        &kReluGrad,
      &kScale,       &kScaleBy,    &kSgdUpdate,        &kSigmoid,    &kSigmoidGrad, &kSilu,
      &kSiluGrad,    &kSlice,      &kSplitDim,         &kSqrt,       &kSquare,      &kSub,
      &kSumLeading,  &kSumSquares, &kSwiglu,           &kSwigluGrad, &kTanh,        &kTanhGrad,
      &kTranspose,   &kZerosLike,
  };
  // clang-format on
  return kOps;
}
}  // namespace

std::span<const OpDef* const> all_ops() { return table(); }

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto at = std::ranges::lower_bound(ops, name, {}, [](const OpDef* op) { return op->name; });
  return at != ops.end() && (*at)->name == name ? *at : nullptr;
}

}  // namespace tessera

// The table of ops: one declaration and one row an op.
#include <algorithm>

#include "graph/op_def.h"

namespace tessera {

extern const OpDef kAdafactorMoment;
extern const OpDef kAdafactorSquares;
extern const OpDef kAdafactorUpdate;
extern const OpDef kAdafactorUpdateStochastic;
extern const OpDef kAdamw8Update;
extern const OpDef kAdamw8UpdateStochastic;
extern const OpDef kAdamwUpdate;
extern const OpDef kAdamwUpdateStochastic;
extern const OpDef kAdapterExpand;
extern const OpDef kAdapterOuter;
extern const OpDef kAdapterOuterPart;
extern const OpDef kAdapterRowSquares;
extern const OpDef kAdapterRows;
extern const OpDef kAdapterShrink;
extern const OpDef kAdd;
extern const OpDef kAddBias;
extern const OpDef kAddLayerNorm;
extern const OpDef kAddRmsNorm;
extern const OpDef kAttention;
extern const OpDef kAttentionGrad;
extern const OpDef kAttentionMerge;
extern const OpDef kAttentionPaged;
extern const OpDef kAttentionSink;
extern const OpDef kAttentionSinkGrad;
extern const OpDef kBroadcast;
extern const OpDef kCast;
extern const OpDef kCausalConv;
extern const OpDef kCausalConvGrad;
extern const OpDef kCausalConvRows;
extern const OpDef kClamp;
extern const OpDef kClampGrad;
extern const OpDef kClipScale;
extern const OpDef kConcat;
extern const OpDef kCrossEntropy;
extern const OpDef kCrossEntropyGrad;
extern const OpDef kDiv;
extern const OpDef kDropout;
extern const OpDef kEmbedding;
extern const OpDef kEmbeddingGrad;
extern const OpDef kExp;
extern const OpDef kExpertMatmul;
extern const OpDef kExpertMatmulWeightGrad;
extern const OpDef kGelu;
extern const OpDef kGeluGrad;
extern const OpDef kHeadMatmul;
extern const OpDef kKvWrite;
extern const OpDef kL2Norm;
extern const OpDef kL2NormGrad;
extern const OpDef kLayerNorm;
extern const OpDef kLayerNormFinish;
extern const OpDef kLayerNormGrad;
extern const OpDef kLayerNormGradFinish;
extern const OpDef kLayerNormGradInput;
extern const OpDef kLayerNormGradSums;
extern const OpDef kLayerNormGradWeight;
extern const OpDef kLinearCrossEntropy;
extern const OpDef kLinearCrossEntropyFinish;
extern const OpDef kLinearCrossEntropyGrad;
extern const OpDef kLinearCrossEntropyGradFinish;
extern const OpDef kLinearRowMax;
extern const OpDef kLinearRowSums;
extern const OpDef kLinearTokenLosses;
extern const OpDef kLinearTokenLossesFinish;
extern const OpDef kLinearTokenLossesGrad;
extern const OpDef kLionUpdate;
extern const OpDef kLionUpdateStochastic;
extern const OpDef kLog;
extern const OpDef kLog1mexp;
extern const OpDef kLogSumExp;
extern const OpDef kLossScaling;
extern const OpDef kLossScalingUpdate;
extern const OpDef kMatmul;
extern const OpDef kMatmulAdd;
extern const OpDef kMatmulGeluGrad;
extern const OpDef kMatmulWeightGrad;
extern const OpDef kMergeDims;
extern const OpDef kMoeCombine;
extern const OpDef kMoeCombineGradGate;
extern const OpDef kMoeCombineGradInput;
extern const OpDef kMoeDispatch;
extern const OpDef kMoeDispatchGrad;
extern const OpDef kMoeFraction;
extern const OpDef kMoeRoute;
extern const OpDef kMoeRouteGrad;
extern const OpDef kMul;
extern const OpDef kPutSlot;
extern const OpDef kQuantizedMatmul, kQuantizedMatmulGrad;
extern const OpDef kMuonMomentum;
extern const OpDef kMuonUpdate;
extern const OpDef kMuonUpdateStochastic;
extern const OpDef kNeg;
extern const OpDef kOrthogonalize;
extern const OpDef kPositionScale;
extern const OpDef kPad;
extern const OpDef kPick;
extern const OpDef kQuantize;
extern const OpDef kQuantizeScale;
extern const OpDef kQuickGelu;
extern const OpDef kQuickGeluGrad;
extern const OpDef kReduceMax;
extern const OpDef kReduceMean;
extern const OpDef kReduceSum;
extern const OpDef kRelu;
extern const OpDef kReluGrad;
extern const OpDef kRmsNorm;
extern const OpDef kRmsNormFinish;
extern const OpDef kRmsNormGrad;
extern const OpDef kRmsNormGradFinish;
extern const OpDef kRmsNormGradInput;
extern const OpDef kRmsNormGradSums;
extern const OpDef kRmsNormGradWeight;
extern const OpDef kRope;
extern const OpDef kRopeAngles;
extern const OpDef kRopeRotate;
extern const OpDef kRowCopy;
extern const OpDef kRowDropout;
extern const OpDef kRowMax;
extern const OpDef kRowSum;
extern const OpDef kRowSumExp;
extern const OpDef kRowSumSquares;
extern const OpDef kSample;
extern const OpDef kScale;
extern const OpDef kScaleBy;
extern const OpDef kScaleChannels;
extern const OpDef kScaleChannelsGradWeight;
extern const OpDef kScaledMatmul;
extern const OpDef kScaledMatmulWeightGrad;
extern const OpDef kSegmentSum;
extern const OpDef kSelectRow;
extern const OpDef kSelectRows;
extern const OpDef kSelectiveScan;
extern const OpDef kSelectiveScanGrad;
extern const OpDef kSelectiveScanRows;
extern const OpDef kSgdUpdate;
extern const OpDef kSgdUpdateStochastic;
extern const OpDef kSigmoid;
extern const OpDef kSigmoidGrad;
extern const OpDef kSilu;
extern const OpDef kSiluGrad;
extern const OpDef kSlice;
extern const OpDef kSoftmax;
extern const OpDef kSoftmaxGrad;
extern const OpDef kSoftplus;
extern const OpDef kSplitDim;
extern const OpDef kSqrt;
extern const OpDef kSquare;
extern const OpDef kSquareSums;
extern const OpDef kStateScan;
extern const OpDef kStateScanGrad;
extern const OpDef kStateScanRows;
extern const OpDef kStepDecay;
extern const OpDef kStepDecayGrad;
extern const OpDef kSub;
extern const OpDef kSumLeading;
extern const OpDef kSumSquares;
extern const OpDef kSwiglu;
extern const OpDef kSwigluGrad;
extern const OpDef kTakeSlot;
extern const OpDef kTanh;
extern const OpDef kTanhGrad;
extern const OpDef kTranspose;
extern const OpDef kZerosLike;

namespace {
// Sorted by name, for the binary search of find_op.
std::span<const OpDef* const> table() {
  static const OpDef* const kOps[] = {
      &kAdafactorMoment,
      &kAdafactorSquares,
      &kAdafactorUpdate,
      &kAdafactorUpdateStochastic,
      &kAdamw8Update,
      &kAdamw8UpdateStochastic,
      &kAdamwUpdate,
      &kAdamwUpdateStochastic,
      &kAdapterExpand,
      &kAdapterOuter,
      &kAdapterOuterPart,
      &kAdapterRowSquares,
      &kAdapterRows,
      &kAdapterShrink,
      &kAdd,
      &kAddBias,
      &kAddLayerNorm,
      &kAddRmsNorm,
      &kAttention,
      &kAttentionGrad,
      &kAttentionMerge,
      &kAttentionPaged,
      &kAttentionSink,
      &kAttentionSinkGrad,
      &kBroadcast,
      &kCast,
      &kCausalConv,
      &kCausalConvGrad,
      &kCausalConvRows,
      &kClamp,
      &kClampGrad,
      &kClipScale,
      &kConcat,
      &kCrossEntropy,
      &kCrossEntropyGrad,
      &kDiv,
      &kDropout,
      &kEmbedding,
      &kEmbeddingGrad,
      &kExp,
      &kExpertMatmul,
      &kExpertMatmulWeightGrad,
      &kGelu,
      &kGeluGrad,
      &kHeadMatmul,
      &kKvWrite,
      &kL2Norm,
      &kL2NormGrad,
      &kLayerNorm,
      &kLayerNormFinish,
      &kLayerNormGrad,
      &kLayerNormGradFinish,
      &kLayerNormGradInput,
      &kLayerNormGradSums,
      &kLayerNormGradWeight,
      &kLinearCrossEntropy,
      &kLinearCrossEntropyFinish,
      &kLinearCrossEntropyGrad,
      &kLinearCrossEntropyGradFinish,
      &kLinearRowMax,
      &kLinearRowSums,
      &kLinearTokenLosses,
      &kLinearTokenLossesFinish,
      &kLinearTokenLossesGrad,
      &kLionUpdate,
      &kLionUpdateStochastic,
      &kLog,
      &kLog1mexp,
      &kLogSumExp,
      &kLossScaling,
      &kLossScalingUpdate,
      &kMatmul,
      &kMatmulAdd,
      &kMatmulGeluGrad,
      &kMatmulWeightGrad,
      &kMergeDims,
      &kMoeCombine,
      &kMoeCombineGradGate,
      &kMoeCombineGradInput,
      &kMoeDispatch,
      &kMoeDispatchGrad,
      &kMoeFraction,
      &kMoeRoute,
      &kMoeRouteGrad,
      &kMul,
      &kMuonMomentum,
      &kMuonUpdate,
      &kMuonUpdateStochastic,
      &kNeg,
      &kOrthogonalize,
      &kPad,
      &kPick,
      &kPositionScale,
      &kPutSlot,
      &kQuantize,
      &kQuantizeScale,
      &kQuantizedMatmul,
      &kQuantizedMatmulGrad,
      &kQuickGelu,
      &kQuickGeluGrad,
      &kReduceMax,
      &kReduceMean,
      &kReduceSum,
      &kRelu,
      &kReluGrad,
      &kRmsNorm,
      &kRmsNormFinish,
      &kRmsNormGrad,
      &kRmsNormGradFinish,
      &kRmsNormGradInput,
      &kRmsNormGradSums,
      &kRmsNormGradWeight,
      &kRope,
      &kRopeAngles,
      &kRopeRotate,
      &kRowCopy,
      &kRowDropout,
      &kRowMax,
      &kRowSum,
      &kRowSumExp,
      &kRowSumSquares,
      &kSample,
      &kScale,
      &kScaleBy,
      &kScaleChannels,
      &kScaleChannelsGradWeight,
      &kScaledMatmul,
      &kScaledMatmulWeightGrad,
      &kSegmentSum,
      &kSelectRow,
      &kSelectRows,
      &kSelectiveScan,
      &kSelectiveScanGrad,
      &kSelectiveScanRows,
      &kSgdUpdate,
      &kSgdUpdateStochastic,
      &kSigmoid,
      &kSigmoidGrad,
      &kSilu,
      &kSiluGrad,
      &kSlice,
      &kSoftmax,
      &kSoftmaxGrad,
      &kSoftplus,
      &kSplitDim,
      &kSqrt,
      &kSquare,
      &kSquareSums,
      &kStateScan,
      &kStateScanGrad,
      &kStateScanRows,
      &kStepDecay,
      &kStepDecayGrad,
      &kSub,
      &kSumLeading,
      &kSumSquares,
      &kSwiglu,
      &kSwigluGrad,
      &kTakeSlot,
      &kTanh,
      &kTanhGrad,
      &kTranspose,
      &kZerosLike,
  };
  return kOps;
}
}  // namespace

std::span<const OpDef* const> all_ops() { return table(); }

const OpDef* find_op(std::string_view name) {
  const auto ops = all_ops();
  const auto at = std::ranges::lower_bound(ops, name, {}, [](const OpDef* op) { return op->name; });
  if (at != ops.end() && (*at)->name == name) return *at;
  const auto former = std::ranges::find(ops, name, [](const OpDef* op) { return op->former_name; });
  return former != ops.end() && !name.empty() ? *former : nullptr;
}

}  // namespace tessera

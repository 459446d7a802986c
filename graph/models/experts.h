// A mixture of experts in place of a block's feed-forward half, and the loss that keeps it balanced.
#pragma once

#include <string>
#include <vector>

#include "graph/models/decoder.h"

namespace tessera {

// AuxiliaryLoss: the balance loss of a layer, E * sum_e fraction[e] * mean probability[e], and the router's
// z-loss, the mean square of the log of the softmax's denominator. Both are computed for every sequence and
// then averaged, so that they do not depend on how a batch is split.
class AuxiliaryLoss {
 public:
  AuxiliaryLoss(LayerBuilder& b, const ExpertSizes& e) : b_(b), e_(e) {}

  void add_layer(TensorId logits, TensorId probs, TensorId expert);
  // kNoTensor when both weights are 0.
  TensorId sum() const { return sum_; }

 private:
  void add(TensorId each /* [B] */, double weight);

  LayerBuilder& b_;
  const ExpertSizes& e_;
  const std::vector<int64_t> tokens_ = {1}, experts_ = {1};
  TensorId sum_ = kNoTensor;
};

// Sums the results of each token's experts, each multiplied by its weight, and of the shared expert, if any.
//   x [B, T, C] -> [B, T, C]
// A sequence is a group: it has slots of its own at every expert, `capacity` times the even share. A token
// without a slot has result 0. capacity = 0: no token is dropped.
// router_x [B, T, C]: what the router reads.
TensorId experts(LayerBuilder& b, const DecoderSizes& m, const std::string& block, TensorId x, TensorId router_x,
                 AuxiliaryLoss& auxiliary);

}  // namespace tessera

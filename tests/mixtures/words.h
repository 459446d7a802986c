// Words of --parallel as data, and draws of mixtures of them that cover every pair and every triple.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tests/mixtures/dice.h"

namespace mixtures {

// One word in one of its forms.
enum Word : uint8_t {
  kDp,
  kTp,
  kTp2d,
  kTp25d,
  kTp3d,
  kSp,
  kRing,
  kRingContiguous,
  kGather,
  kGatherContiguous,
  kUlysses,
  kEp,
  kPp,
  kGpipe,
  k1f1b,
  kInterleaved,
  kZbH1,
  kZbH2,
  kZbV,
  kZero1,
  kZero2,
  kZero3,
  kZeroGroup,
  kMb,
  kChunks,
  kRecomputeFull,
  kRecomputeSome,
  kRecomputeAuto,
  kOffloadAuto,
  kParamsHost,
  kParamsFile,
  kGradsHost,
  kGradsFile,
  kOptimizerHost,
  kOptimizerFile,
  kActivationsHost,
  kActivationsFile,
  kKeep,
  kOwt,
  kWords
};

using Mixture = std::vector<Word>;  // sorted, each once
bool contains(const Mixture& mixture, Word word);
bool contains_any(const Mixture& mixture, Word first, Word last);

// The fewest devices that run all of it.
int64_t least_devices(const Mixture& mixture);

// Draws mixtures around the triple that was drawn least.
class Drawing {
 public:
  explicit Drawing(uint32_t seed) : dice_(seed) {}
  Mixture next();
  void count(const Mixture& mixture, bool ran);

  struct Coverage {
    int possible = 0, drawn = 0, ran = 0;
  };
  Coverage pairs() const;
  Coverage triples() const;

 private:
  struct Count {
    int drawn = 0, ran = 0;
  };
  static size_t at(size_t a, size_t b, size_t c) { return (a * kWords + b) * kWords + c; }

  Dice dice_;
  size_t next_ = 0;  // of those that were wrong once
  std::vector<Count> pairs_ = std::vector<Count>(static_cast<size_t>(kWords) * kWords);
  std::vector<Count> triples_ = std::vector<Count>(static_cast<size_t>(kWords) * kWords * kWords);
};

}  // namespace mixtures

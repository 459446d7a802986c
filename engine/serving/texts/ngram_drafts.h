// NgramDrafts: drafts how a text goes on from what it says already: what followed its last three tokens when they came
// before ("prompt lookup", Saxena 2023; "LLMA", Yang et al., 2023). Costs little where nothing repeats. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace tessera {

class NgramDrafts {
 public:
  // What followed the last tokens of the text when they came before, the last time; at most `most` tokens, empty where they
  // never did. `tokens`: the text, whose beginning is that of earlier calls.
  std::span<const int32_t> propose(std::span<const int32_t> tokens, size_t most);

 private:
  static constexpr size_t kLength = 3;
  std::unordered_map<uint64_t, size_t> after_;  // by the hash of kLength tokens: the place behind them
  size_t indexed_ = kLength;                    // places before this one are there
};

}  // namespace tessera

// NgramDrafts: proposes the tokens that followed the last occurrence of the text's last three tokens ("prompt
// lookup", Saxena 2023; "LLMA", Yang et al., 2023). Cheap without repetitions. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>

namespace tessera {

class NgramDrafts {
 public:
  // Returns at most `most` tokens; empty without an earlier occurrence.
  // `tokens`: the text; each call extends the previous one's.
  std::span<const int32_t> propose(std::span<const int32_t> tokens, size_t most);

 private:
  static constexpr size_t kLength = 3;
  std::unordered_map<uint64_t, size_t> next_position_;  // hash of kLength tokens -> position of the token that follows
  size_t indexed_ = kLength;                            // positions before this one are indexed
};

}  // namespace tessera

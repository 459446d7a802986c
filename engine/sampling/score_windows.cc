#include "engine/sampling/score_windows.h"

#include <algorithm>

namespace tessera {

std::vector<ScoreWindow> make_windows(std::span<const size_t> lengths, const ScoreGrid& grid) {
  std::vector<ScoreWindow> windows;
  const auto seq = static_cast<size_t>(grid.seq), stride = static_cast<size_t>(grid.stride);
  const size_t unpredicted = grid.bos ? 0 : 1;  // first tokens without a prediction
  size_t text = 0;                              // index of its first token
  for (const size_t length : lengths) {
    const size_t labels = length - std::min(length, unpredicted);
    size_t scored = 0;
    for (size_t begin = 0; scored < labels; begin += stride) {
      const size_t end = std::min(begin + seq, labels);
      windows.push_back({text + unpredicted + begin, static_cast<int32_t>(end - begin),
                         static_cast<int32_t>(scored - begin)});
      scored = end;
    }
    text += length;
  }
  return windows;
}

}  // namespace tessera

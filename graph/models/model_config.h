// ModelConfig: a model family's hyper-parameters by name.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace tessera {

// Hyper-parameters in the letters of the shorthand: L layers, C channels, H heads, KV key-value heads, F
// feed-forward width, V vocabulary, T context length, D head size, E experts, K experts of a token. Families
// read the ones they need and fill in defaults.
struct ModelConfig {
  std::string family;                    // "llama", "gpt2", ...
  std::map<std::string, int64_t> sizes;  // "L" -> 12
  std::map<std::string, double> reals;   // "norm_eps", "rope_theta", "dropout", "capacity"
  std::map<std::string, bool> flags;     // "tied" (output projection = embedding)
  std::map<std::string, std::vector<int64_t>> lists;  // a number for each layer: "windows" -> {0, 4096, 0}
};

}  // namespace tessera

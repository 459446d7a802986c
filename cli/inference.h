// Options of commands that generate or score: precision, storage of weights, and sampling.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "command.h"

namespace cli {

struct Inference {
  std::optional<std::string> precision, activations, repack, weights;  // absent: the library's default
};
void add_inference(CLI::App& command, Inference& inference);
void set_inference(const Options& options, const Inference& inference);

// Options of sampling, and of the end of a text.
struct Sampling {
  int64_t count = 0;
  std::optional<int64_t> top_k, seed, context;  // absent: the library's default
  std::optional<double> temperature, top_p;
  std::vector<std::string> stop;
};
void add_sampling(CLI::App& command, Sampling& sampling);
void set_sampling(const Options& options, const Sampling& sampling);

}  // namespace cli

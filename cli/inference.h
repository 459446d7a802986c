// Options of commands that generate or score: what is computed in, and how weights are kept.
#pragma once

#include <optional>
#include <string>

#include "command.h"

namespace cli {

struct Inference {
  std::optional<std::string> precision, activations, repack, weights;  // absent: the library decides
};
void add_inference(CLI::App& command, Inference& inference);
void set_inference(const Options& options, const Inference& inference);

}  // namespace cli

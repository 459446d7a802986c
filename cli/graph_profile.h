// `tessera inspect --profile`: operations, traffic and memory of a training step, or of a forward pass.
#pragma once

#include "command.h"

namespace cli {

struct ProfileQuestion {
  int64_t batch = 1, seq = 0;  // 0: 128, or the context length where that is shorter
  std::string optimizer = "adamw";  // By name: the default that --help shows
  bool forward_only = false, nodes = false;
};
void add_question(CLI::App& command, ProfileQuestion& question);

Json graph_profile(const Model& model, const ProfileQuestion& question);
void print_profile(const Json& profile);

}  // namespace cli

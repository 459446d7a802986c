// --adapter of texts: PATH is put on the model, NAME=PATH is for the lines of a file of requests that say so.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "command.h"

namespace cli {

struct AdapterArguments {
  std::string of_model;                      // empty: none
  std::map<std::string, std::string> named;  // paths
};
void add_adapters(CLI::App& command, std::vector<std::string>& words);
AdapterArguments read_adapters(const std::vector<std::string>& words);

}  // namespace cli

// AdapterArguments: the option --adapter of texts. PATH applies to the model, NAME=PATH to the lines of a file of requests that name it.
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

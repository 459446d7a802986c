// --method: the trained parameters, chosen by the memory of each method.
#pragma once

#include <string>

#include "adapter_options.h"
#include "command.h"

namespace cli {

void add_method(CLI::App& command, std::string& method);

// Returns the model of the method, and in `report` the text of tsr_plan_methods. `options`: the trainer's; dataset may be null.
Model model_for_method(const Runtime& runtime, const Model& model, const tsr_dataset* dataset,
                       const Options& options, const std::string& method, const Adapters& adapters,
                       Json& report);

// A line for each method, the chosen one marked.
std::string methods_text(const Json& report);

}  // namespace cli

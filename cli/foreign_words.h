// What users of other projects (llama.cpp, Ollama, vLLM, transformers, TRL, axolotl, unsloth ...) type first, and the words here.
#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace cli {

// What does the work of a command of another project: "tessera chat MODEL ..."; "": it is not known.
std::string command_for(const std::string& word);
// Our counterpart of a llama.cpp option with one dash and several letters, such as "-ngl"; "" for an unknown name.
std::string llama_option(const std::string& name);
// The option of `command` for one of another project: "--lr", or what to do instead; "": it is not known.
std::string option_for(const CLI::App& command, const std::string& word);

}  // namespace cli

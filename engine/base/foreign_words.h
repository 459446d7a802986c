// Words of other projects (transformers, PEFT, TRL, llama.cpp, vLLM, Ollama, axolotl ...) and the option or value of that meaning
// here, for messages about words that are not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera {

// The option of `known` that another project calls `key`; "": none.
std::string option_of(std::string_view key, const std::vector<std::string>& known);
// The value of `known` that another project calls `value`; "": none.
std::string value_of(std::string_view value, const std::vector<std::string>& known);

}  // namespace tessera

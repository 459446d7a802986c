// Words of other projects (transformers, PEFT, TRL, llama.cpp, vLLM, Ollama, axolotl ...) and the option, value or command of that
// meaning here, for messages about words that are not known.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// The end of a message about the option `key`, which is none of `known`: "it is 'lr' here"; "": another project's word it is not.
std::string unknown_option_hint(std::string_view key, const std::vector<std::string>& known);
// The same of a word of a command line, misspellings too: see tsr_word_hint.
Result<std::string> word_hint(std::string_view kind, std::string_view word, std::string_view known);
// The value of `known` that another project calls `value`; "": none.
std::string value_of(std::string_view value, const std::vector<std::string>& known);

}  // namespace tessera

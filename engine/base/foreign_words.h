// Option names and values of other projects (transformers, PEFT, TRL, llama.cpp, vLLM,
// Ollama, axolotl ...) and their counterparts here, for messages about unknown options.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera {

// The end of a message about the option `key`, which is none of `known`: "it is 'lr' here"; "": another project's word it is not.
std::string unknown_option_hint(std::string_view key, const std::vector<std::string>& known);
// The same of misspellings too, in the spelling of `known`: "did you mean --lr?", "instead: ...".
std::string option_hint(std::string_view word, const std::vector<std::string>& known);
// The same of options and commands; `known` has spaces between: tsr_word_hint.
Result<std::string> word_hint(std::string_view kind, std::string_view word, std::string_view known);
// The value of `known` that another project calls `value`; "": none.
std::string value_of(std::string_view value, const std::vector<std::string>& known);

}  // namespace tessera

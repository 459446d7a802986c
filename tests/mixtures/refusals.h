// Reasons for which mixtures are refused, each told by the words that its message must have.
#pragma once

#include <string>
#include <string_view>

namespace mixtures {

// Empty when none is known: that mixture should run, or its message says too little.
std::string reason_of(std::string_view message, bool limited);

}  // namespace mixtures

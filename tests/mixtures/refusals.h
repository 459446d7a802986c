// Reasons for which mixtures are refused, each with words of its message.
#pragma once

#include <string>
#include <string_view>

namespace mixtures {

// Empty when none is known: that mixture should run, or its message says too little.
std::string reason_of(std::string_view message, bool limited);

}  // namespace mixtures

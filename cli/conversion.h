// Conversions of model files, with progress and Ctrl-C.
#pragma once

#include <string>

#include "command.h"

namespace cli {

// Reads `input` to its last checksum and writes `output`; `doing` begins the line of progress: "importing". Options:
// those of tsr_conversion_begin. The report is as tsr_conversion_finish gives it. Throws.
Json convert(const Common& common, const std::string& doing, const std::string& input,
             const std::string& output, const Options& options);

}  // namespace cli

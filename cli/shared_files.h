// A check of files that a command would both read and write, or write twice: the user's file would be lost, or one of the results.
#pragma once

#include "command.h"

namespace cli {

// Throws for a file that two options of the command share, one of which writes it.
void refuse_shared_files(const CLI::App& command);

}  // namespace cli

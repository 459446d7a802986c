#pragma once

namespace cli {

// Executes tessera-serve, next to this program or in PATH, with these words; the first is replaced by its name, the last is
// nullptr. Returns the exit status if it cannot be executed, after an error message.
int execute_service(char** words);

}  // namespace cli

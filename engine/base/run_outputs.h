// Leftovers of an earlier run in the place of a new one's output.
#pragma once

#include <string>

#include "graph/base/status.h"

namespace tessera {

// kExists if there is a result at `out`, or a checkpoint in or next to
// the folder `checkpoint`, unless the run resumes it (`resumed`). Each may be "".
Status check_no_earlier_run(const std::string& out, const std::string& checkpoint,
                            const std::string& resumed);

// Whether the run of the checkpoint `resumed` ("": none) wrote `out`, and so may overwrite it.
bool is_result_of_run(const std::string& out, const std::string& resumed);

}  // namespace tessera

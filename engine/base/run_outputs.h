// What an earlier run left where a new one would write.
#pragma once

#include <string>

#include "graph/base/status.h"

namespace tessera {

// kExists where a result is at `out`, or a checkpoint in the folder `checkpoint` or next to it, and the run does
// not go on from it (`resumed`). Each may be "".
Status check_no_earlier_run(const std::string& out, const std::string& checkpoint,
                            const std::string& resumed);

// Whether the run of the checkpoint `resumed` ("": none) wrote its result to `out`, so that it may do so again.
bool is_result_of_run(const std::string& out, const std::string& resumed);

}  // namespace tessera

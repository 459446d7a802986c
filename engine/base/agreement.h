// Agreement between processes that run together: values that must be equal in all, and errors that all report.
#pragma once

#include <map>
#include <string>

#include "graph/base/result.h"
#include "runtime/transport.h"

namespace tessera {

// The same status in every process: that of the first process with an error, which it names. Collective; ok without a channel.
Status agree(Channel* channel, const Status& mine);

// Compares named values with those of the first process. kFailedPrecondition, everywhere, names the first that differs in some
// process, and both values. Collective; ok without a channel.
Status agree_on_values(Channel* channel, const std::map<std::string, std::string>& mine);

// The largest of all processes' numbers. Collective; `mine` without a channel.
Result<int64_t> agree_on_largest(Channel* channel, int64_t mine);

Result<int64_t> sum_of_all(Channel* channel, int64_t mine);  // likewise

}  // namespace tessera

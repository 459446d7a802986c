// check_issue_order: whether a Program runs where one thread issues for all streams of a rank, in program
// order (backends that do not block). A receive blocks its rank until its send was issued, a collective until
// all its members issue theirs; a send does not block. Separate streams would let an instruction overtake a
// waiting receive; one thread does not.
#pragma once

#include <string_view>

#include "graph/base/result.h"
#include "graph/program.h"

namespace tessera {

// `messages_under_way`: sends of a pair of ranks before the sender waits for a receive. kFailedPrecondition
// names the ranks that wait for each other.
Status check_issue_order(const Program& program, std::string_view entry, int32_t messages_under_way = 16);

}  // namespace tessera

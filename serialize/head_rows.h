// HeadRows: the order of rows of q and k within a head, which differs between projects' files.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// HeadRows: R of a head's D rows are rotated, in pairs (i, i + R/2) if `half`, else (2i, 2i + 1).
struct HeadRows {
  int64_t D = 0, R = 0;
  bool half = false, wanted_half = false;
};

// For each row of the target order, the present row of the head; empty: equal orders.
std::vector<int64_t> row_order(const HeadRows& heads);

// Whether the parameter's rows are those of rotated heads: "q" of "block.3.q" and of "block.3.q.bias".
bool has_rotated_rows(std::string_view parameter);

}  // namespace tessera

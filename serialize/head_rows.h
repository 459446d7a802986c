// HeadRows: the order of the rows of q and k within a head, which files of different projects differ in.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera {

// Of a head's D rows R are rotated: pairs (i, i + R/2) where `half`, else (2i, 2i + 1).
struct HeadRows {
  int64_t D = 0, R = 0;
  bool half = false, wanted_half = false;
};

// Row of the head as it is, for each row of the wanted order; empty where both are one.
std::vector<int64_t> row_order(const HeadRows& heads);

// Whether the parameter's rows are those of rotated heads: "q" of "block.3.q" and of "block.3.q.bias".
bool has_rotated_rows(std::string_view parameter);

}  // namespace tessera

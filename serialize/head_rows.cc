#include "serialize/head_rows.h"

#include <cstddef>

namespace tessera {

std::vector<int64_t> row_order(const HeadRows& heads) {
  if (heads.half == heads.wanted_half) return {};
  std::vector<int64_t> from(static_cast<size_t>(heads.D));
  for (int64_t row = 0; row < heads.D; ++row) {
    int64_t& source = from[static_cast<size_t>(row)];
    if (row >= heads.R)
      source = row;
    else if (heads.wanted_half)
      source = row < heads.R / 2 ? 2 * row : 2 * (row - heads.R / 2) + 1;
    else
      source = row / 2 + (row % 2 == 0 ? 0 : heads.R / 2);
  }
  return from;
}

bool has_rotated_rows(std::string_view parameter) {
  if (!parameter.starts_with("block.") && !parameter.starts_with("draft.")) return false;
  if (parameter.ends_with(".bias")) parameter.remove_suffix(5);
  const std::string_view leaf = parameter.substr(parameter.rfind('.') + 1);
  return leaf == "q" || leaf == "k" || leaf == "q_norm" || leaf == "k_norm";
}

}  // namespace tessera

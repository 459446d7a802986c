// Texts for people: sizes, and the names that were perhaps meant.
#include "graph/base/text.h"

#include <doctest/doctest.h>

#include <cstdint>
#include <string>
#include <vector>

using namespace tessera;

TEST_CASE("sizes are written in the largest unit that fits, two digits after a point") {
  CHECK(bytes_text(0) == "0 B");
  CHECK(bytes_text(1023) == "1023 B");
  CHECK(bytes_text(1536) == "1.50 KiB");
  CHECK(bytes_text(int64_t{3} << 30) == "3.00 GiB");
  CHECK(bytes_text(INT64_MAX) == "8388608.00 TiB");
}

TEST_CASE("the nearest names are found, and among names of megabytes at once") {
  std::vector<std::string> names = {"lr", "lr_rate", "weight_decay", "steps"};
  CHECK(nearest_names("lr_rates", names) == std::vector<std::string>{"lr_rate"});
  CHECK(nearest_names("q9_zz", names).empty());
  const std::string huge(size_t{1} << 20, 'l');
  CHECK(nearest_names(huge, names).empty());
  names.assign(100, huge);  // compared whole, they take hours; each name once
  CHECK(nearest_names(huge + "r", names) == std::vector<std::string>{huge});
}

// The loaders under test: each makes a mutant from a valid file and reads it.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "graph/base/status.h"
#include "tests/fuzz/random.h"

namespace tessera::fuzz {

struct Outcome {
  bool past_header = false;  // magic number, sizes and checksums were right
  Status status;             // ok: accepted, and what was read has been used
};

class Loader {
 public:
  virtual ~Loader() = default;
  virtual std::string_view name() const = 0;
  virtual Outcome run(Random& random) = 0;
};

std::vector<std::unique_ptr<Loader>> all_loaders();

}  // namespace tessera::fuzz

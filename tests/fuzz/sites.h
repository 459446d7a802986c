// Sites: the places of a file that mean something (a scalar, a length, an offset, text), found by walking a
// valid file, so that a mutant stays a file of its format except the changed fields.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/fuzz/random.h"

namespace tessera::fuzz {

struct Site {
  enum class Kind : uint8_t { kScalar, kLength, kOffset, kText } kind = Kind::kScalar;
  size_t at = 0, bytes = 0;
  size_t target = 0;  // kOffset: where it points
};

// Sites of the FlatBuffer at `begin` in `file`; `schema` is the contents of its .bfbs.
std::vector<Site> flatbuffer_sites(const std::string& file, size_t begin, const std::string& schema);
std::vector<Site> gguf_sites(const std::string& file);

// Changes one to three sites.
void mutate_sites(std::string& file, const std::vector<Site>& sites, Random& random);

// Changes one to three words, numbers or lines of a text.
void mutate_text(std::string& text, Random& random);

}  // namespace tessera::fuzz

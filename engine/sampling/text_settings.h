// TextSettings: sampling and end of one text. Keys: tessera.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/base/options.h"
#include "graph/base/result.h"

namespace tessera {

struct TextSettings {
  int64_t max_tokens = 0;  // 0: until the context is full
  double temperature = 0.8, top_p = 1;
  int64_t top_k = 0;
  std::optional<int64_t> seed;  // nullopt: each text draws its own
  bool echo = false;
  bool special = false;  // written-out control tokens of a prompt are encoded as such
  std::vector<std::string> stop;
  std::vector<int64_t> stop_ids;
};

TextSettings read_text(OptionReader& reader, const TextSettings& otherwise);
// Reads one text's options; `otherwise` has the defaults.
Result<TextSettings> read_text_settings(const Options& options, const TextSettings& otherwise);
// The names of those options.
const std::vector<std::string>& text_option_names();

}  // namespace tessera

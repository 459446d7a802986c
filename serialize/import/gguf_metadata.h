// Metadata of a GGUF file around its model: names, chat templates, sampler settings, pooling.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

// Prefix of our own text keys, for metadata without a GGUF key: "tessera.normalize" is metadata "normalize".
inline constexpr std::string_view kOwnGgufPrefix = "tessera.";
// Metadata written with that prefix, in addition to the rest of a generation_config.
extern const std::span<const std::string_view> kOwnGgufKeys;

// Indexed by <architecture>.pooling_type.
inline constexpr std::array<std::string_view, 5> kGgufPoolings = {"none", "mean", "cls", "last", "rank"};
inline constexpr int64_t kGgufRankPooling = 4;

// Sets `metadata`. kUnsupported for an unknown pooling.
Status read_gguf_metadata(const GgufFile& file, std::string_view architecture,
                          std::map<std::string, std::string>& metadata);

}  // namespace tessera

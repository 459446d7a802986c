// What a GGUF file says around its model, as metadata: names, chat templates, settings of samplers, pooling.
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

// Keys of our own, texts: what the format has no key for. "tessera.normalize" is metadata "normalize".
inline constexpr std::string_view kOwnGgufPrefix = "tessera.";
// Metadata that are written so, besides what is left of a generation_config.
extern const std::span<const std::string_view> kOwnGgufKeys;

// By the number of <architecture>.pooling_type.
inline constexpr std::array<std::string_view, 5> kGgufPoolings = {"none", "mean", "cls", "last", "rank"};
inline constexpr int64_t kGgufRankPooling = 4;

// Sets `metadata`. kUnsupported for a kind of pooling that is not known.
Status read_gguf_metadata(const GgufFile& file, std::string_view architecture,
                          std::map<std::string, std::string>& metadata);

}  // namespace tessera

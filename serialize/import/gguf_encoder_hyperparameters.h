// Hyper-parameters of GGUF's encoders: architectures bert, nomic-bert and modern-bert.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "graph/base/result.h"
#include "graph/models/model_family.h"
#include "serialize/import/foreign_file.h"
#include "serialize/import/gguf_file.h"

namespace tessera {

inline constexpr std::string_view kGgufEncoders[] = {"bert", "modern-bert", "nomic-bert"};
bool is_gguf_encoder(std::string_view architecture);

// The model described by keys and tensors, without a head or with a classifier. Sets the class labels.
Result<ModelConfig> read_gguf_encoder(const GgufFile& file, std::string_view architecture,
                                      const ForeignTensors& tensors,
                                      std::map<std::string, std::string>& metadata);

}  // namespace tessera

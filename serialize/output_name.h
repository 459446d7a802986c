// The output format implied by a file name: .gguf is GGUF, unsupported formats are refused, others are .tsr.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/status.h"

namespace tessera {

bool is_gguf_name(std::string_view path);  // ends in .gguf, in either case

// kInvalidArgument, with the remedy, for a model file name of an unsupported
// format: .onnx, .safetensors, .bin ... Other names are .tsr files.
Status check_file_name(const std::string& path);
// Likewise for a folder name, which also must not end in .gguf or .tsr.
Status check_folder_name(const std::string& path);
// Likewise for a GGUF file name, which also must not end in .tsr.
Status check_gguf_name(const std::string& path);

}  // namespace tessera

// The format that the name of an output says: .gguf is GGUF, the names of formats that are not written are refused.
#pragma once

#include <string>
#include <string_view>

#include "graph/base/status.h"

namespace tessera {

bool is_gguf_name(std::string_view path);  // ends in .gguf, in letters of either case

// kInvalidArgument, with the remedy, for the name of a model's file in a format that is not written: .onnx, .safetensors, .bin ...
// All names without such an ending are those of .tsr files.
Status check_file_name(const std::string& path);
// The same for the name of a folder, which .gguf and .tsr are not either.
Status check_folder_name(const std::string& path);
// The same for the name of a GGUF file, which .tsr is not.
Status check_gguf_name(const std::string& path);

}  // namespace tessera

// cuDNN's graph interface, opened at run time.
#pragma once

#include <cudnn_graph.h>

#include <string_view>

#include "graph/base/result.h"

namespace tessera::cuda {

// The functions in use.
struct Dnn {
  decltype(&::cudnnGetVersion) version;
  decltype(&::cudnnGetLastErrorString) last_error;  // of this thread
  decltype(&::cudnnCreate) create;
  decltype(&::cudnnSetStream) set_stream;
  decltype(&::cudnnBackendCreateDescriptor) create_descriptor;
  decltype(&::cudnnBackendDestroyDescriptor) destroy_descriptor;
  decltype(&::cudnnBackendSetAttribute) set_attribute;
  decltype(&::cudnnBackendGetAttribute) get_attribute;
  decltype(&::cudnnBackendFinalize) finalize;
  decltype(&::cudnnBackendExecute) execute;

  // kUnsupported with the library's own text, so that a refused op runs on another kernel.
  Status status(cudnnStatus_t status, std::string_view what) const;
};

// kUnsupported with the loader's reason, or where the library is older than 9.16: before that, its backward
// attention reads beyond keys whose number is no multiple of 128. Opened once a process.
Result<const Dnn*> dnn();
inline constexpr size_t kLeastDnnVersion = 91600;

}  // namespace tessera::cuda

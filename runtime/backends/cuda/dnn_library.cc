#include "runtime/backends/cuda/dnn_library.h"

#include "runtime/backends/cuda/shared_library.h"

namespace tessera::cuda {

namespace {

Result<Dnn> load() {
  static constexpr const char* kNames[] = {"libcudnn.so.9", TSR_CUDA_LIBRARY_FOLDER "/libcudnn.so.9",
                                           nullptr};
  TSR_ASSIGN_OR_RETURN(void* const library, open_library(kNames));
  Dnn api{};
  TSR_RETURN_IF_ERROR(bind(library, "cudnnGetVersion", api.version));
  if (const size_t version = api.version(); version < kLeastDnnVersion)
    return Status(StatusCode::kUnsupported,
                  format("version {}, at least {} is wanted: install a newer libcudnn.so.9",
                         static_cast<uint64_t>(version), static_cast<uint64_t>(kLeastDnnVersion)));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnGetLastErrorString", api.last_error));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnCreate", api.create));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnSetStream", api.set_stream));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendCreateDescriptor", api.create_descriptor));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendDestroyDescriptor", api.destroy_descriptor));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendSetAttribute", api.set_attribute));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendGetAttribute", api.get_attribute));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendFinalize", api.finalize));
  TSR_RETURN_IF_ERROR(bind(library, "cudnnBackendExecute", api.execute));
  return api;
}

}  // namespace

Result<const Dnn*> dnn() {
  static const Result<Dnn> loaded = load();
  if (!loaded.ok()) return loaded.status().with_context("cuDNN");
  return &loaded.value();
}

Status Dnn::status(cudnnStatus_t status, std::string_view what) const {
  if (status == CUDNN_STATUS_SUCCESS) return {};
  char text[512] = {};
  last_error(text, sizeof(text));
  return Status(StatusCode::kUnsupported,
                format("cuDNN answers {} to {}: {}", static_cast<int32_t>(status), what, text));
}

}  // namespace tessera::cuda

#include "runtime/backends/cuda/library.h"

#include "runtime/backends/cuda/shared_library.h"

namespace tessera::cuda {

namespace {

Result<CublasLt> load_cublas_lt() {
  static constexpr const char* kNames[] = {"libcublasLt.so.13", "libcublasLt.so",
                                           TSR_CUDA_LIBRARY_FOLDER "/libcublasLt.so.13", nullptr};
  TSR_ASSIGN_OR_RETURN(void* const library, open_library(kNames));
  CublasLt lt{};
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtCreate", lt.create));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmul", lt.matmul));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulDescCreate", lt.desc_create));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulDescDestroy", lt.desc_destroy));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulDescSetAttribute", lt.desc_set));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatrixLayoutCreate", lt.layout_create));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatrixLayoutDestroy", lt.layout_destroy));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatrixLayoutSetAttribute", lt.layout_set));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulPreferenceCreate", lt.preference_create));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulPreferenceDestroy", lt.preference_destroy));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulPreferenceSetAttribute", lt.preference_set));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulAlgoGetHeuristic", lt.heuristic));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtMatmulAlgoConfigGetAttribute", lt.algorithm_get));
  TSR_RETURN_IF_ERROR(bind(library, "cublasLtGetVersion", lt.version));
  return lt;
}

Result<Nccl> load_nccl() {
  static constexpr const char* kNames[] = {"libnccl.so.2", TSR_CUDA_LIBRARY_FOLDER "/libnccl.so.2", nullptr};
  TSR_ASSIGN_OR_RETURN(void* const library, open_library(kNames));
  Nccl api{};
  TSR_RETURN_IF_ERROR(bind(library, "ncclCommInitAll", api.init_all));
  TSR_RETURN_IF_ERROR(bind(library, "ncclCommDestroy", api.destroy));
  TSR_RETURN_IF_ERROR(bind(library, "ncclCommAbort", api.abort));
  TSR_RETURN_IF_ERROR(bind(library, "ncclAllReduce", api.all_reduce));
  TSR_RETURN_IF_ERROR(bind(library, "ncclAllGather", api.all_gather));
  TSR_RETURN_IF_ERROR(bind(library, "ncclReduceScatter", api.reduce_scatter));
  TSR_RETURN_IF_ERROR(bind(library, "ncclBroadcast", api.broadcast));
  TSR_RETURN_IF_ERROR(bind(library, "ncclGroupStart", api.group_start));
  TSR_RETURN_IF_ERROR(bind(library, "ncclGroupEnd", api.group_end));
  TSR_RETURN_IF_ERROR(bind(library, "ncclGetErrorString", api.error_string));
  TSR_RETURN_IF_ERROR(bind(library, "ncclGetVersion", api.version));
  return api;
}

}  // namespace

Result<const CublasLt*> cublas_lt() {
  static const Result<CublasLt> loaded = load_cublas_lt();
  if (!loaded.ok()) return loaded.status().with_context("cuBLASLt");
  return &loaded.value();
}

Result<const Nccl*> nccl() {
  static const Result<Nccl> loaded = load_nccl();
  if (!loaded.ok()) return loaded.status().with_context("NCCL");
  return &loaded.value();
}

}  // namespace tessera::cuda

// cuBLASLt, opened at run time, so that the plugin loads, and names what is missing, where it is absent.
#pragma once

#include <cublasLt.h>
#include <nccl.h>

#include "graph/base/result.h"

namespace tessera::cuda {

// The functions of cuBLASLt in use; kUnsupported with the loader's reason. Opened once a process.
struct CublasLt {
  decltype(&::cublasLtCreate) create;
  decltype(&::cublasLtMatmul) matmul;
  decltype(&::cublasLtMatmulDescCreate) desc_create;
  decltype(&::cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&::cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&::cublasLtMatrixLayoutCreate) layout_create;
  decltype(&::cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&::cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&::cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&::cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&::cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&::cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&::cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&::cublasLtGetVersion) version;
};
Result<const CublasLt*> cublas_lt();

struct Nccl {
  decltype(&::ncclCommInitAll) init_all;
  decltype(&::ncclCommDestroy) destroy;
  decltype(&::ncclCommAbort) abort;
  decltype(&::ncclAllReduce) all_reduce;
  decltype(&::ncclAllGather) all_gather;
  decltype(&::ncclReduceScatter) reduce_scatter;
  decltype(&::ncclBroadcast) broadcast;
  decltype(&::ncclGroupStart) group_start;
  decltype(&::ncclGroupEnd) group_end;
  decltype(&::ncclGetErrorString) error_string;
  decltype(&::ncclGetVersion) version;
};
Result<const Nccl*> nccl();

}  // namespace tessera::cuda

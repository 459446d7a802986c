// cuBLASLt as its documentation says, in plain loops on column-major operands.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cmath>
#include <cstring>

#include "graph/base/text.h"
#include "graph/base/tf32.h"
#include "runtime/backends/cuda/library.h"
#include "tests/cuda_emulator/runtime.h"

namespace tessera::cuda {

namespace {

// The contents of the opaque structs here.
struct Desc {
  const void* self;  // what the library makes may point into itself: a copy of its bytes is none
  cublasComputeType_t compute;
  cudaDataType_t scale;
  int32_t trans_a, trans_b;
  uint32_t epilogue;
  const void* bias;
  void* aux;
  int64_t aux_ld;
  const float *a_scale, *b_scale;
};
struct Layout {
  cudaDataType type;
  uint64_t rows, cols;
  int64_t ld;
  int32_t batches;
  int64_t batch_stride;
};
// A product is proposed in so many ways. Each sums k in parts of its own, one more than its place among them,
// which leaves other bits.
constexpr uint32_t kWays = 4;
constexpr uint32_t kDeclined = 2;  // proposed, but not launched
struct Algorithm {
  uint32_t alignment;  // of its operands, as the heuristic was asked
  uint32_t place;
  uint32_t bias_alignment, aux_alignment;  // as their addresses were when it was
};
uint32_t alignment_of(const void* at) {
  const auto bits = reinterpret_cast<uintptr_t>(at);
  return static_cast<uint32_t>(std::min<uintptr_t>(16, bits & (~bits + 1)));
}
bool has_bias(const Desc& desc) {
  return (desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0 || desc.epilogue == CUBLASLT_EPILOGUE_DGELU_BGRAD;
}
bool has_aux(const Desc& desc) { return (desc.epilogue & 128) != 0; }
static_assert(sizeof(Desc) <= sizeof(cublasLtMatmulDescOpaque_t) &&
              sizeof(Layout) <= sizeof(cublasLtMatrixLayoutOpaque_t));

template <class T, class Opaque>
T get(const Opaque* opaque) {
  T value;
  std::memcpy(&value, opaque, sizeof(T));
  return value;
}
template <class T, class Opaque>
void put(Opaque* opaque, const T& value) {
  std::memcpy(opaque, &value, sizeof(T));
}

Desc desc_of(const cublasLtMatmulDescOpaque_t* at) {
  const auto desc = get<Desc>(at);
  if (desc.self == at) return desc;
  std::fprintf(stderr, "cuda emulator: a copy of a descriptor of cuBLASLt is used\n");
  std::abort();
}

int64_t value_bytes(cudaDataType type) {
  if (type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2) return 1;
  return type == CUDA_R_64F ? 8 : type == CUDA_R_16F || type == CUDA_R_16BF ? 2 : 4;
}
// Returns the multiplied value of an operand.
double factor_of(const Desc& desc, double value) {
  return desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 ? tf32_from_f32(static_cast<float>(value)) : value;
}
double load_value(cudaDataType type, const void* at, int64_t i) {
  switch (type) {
    case CUDA_R_64F: return static_cast<const double*>(at)[i];
    case CUDA_R_16F: return __half2float(static_cast<const __half*>(at)[i]);
    case CUDA_R_16BF: return __bfloat162float(static_cast<const __nv_bfloat16*>(at)[i]);
    case CUDA_R_8F_E4M3: return static_cast<float>(static_cast<const __nv_fp8_e4m3*>(at)[i]);
    case CUDA_R_8F_E5M2: return static_cast<float>(static_cast<const __nv_fp8_e5m2*>(at)[i]);
    default: return static_cast<const float*>(at)[i];
  }
}
void store_value(cudaDataType type, void* at, int64_t i, double value) {
  switch (type) {
    case CUDA_R_64F: static_cast<double*>(at)[i] = value; break;
    case CUDA_R_16F: static_cast<__half*>(at)[i] = __float2half_rn(static_cast<float>(value)); break;
    case CUDA_R_16BF:
      static_cast<__nv_bfloat16*>(at)[i] = __float2bfloat16_rn(static_cast<float>(value));
      break;
    default: static_cast<float*>(at)[i] = static_cast<float>(value);
  }
}
bool is_fp8(cudaDataType type) { return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2; }
// What the library's manual says of products of 8-bit floats on sm_89 and sm_90; others are no concern of
// this.
bool takes(const Desc& desc, const Layout& a, const Layout& b, const Layout& d) {
  if (!is_fp8(a.type) && !is_fp8(b.type)) return true;
  const bool types = is_fp8(a.type) && is_fp8(b.type) &&
                     (a.type == CUDA_R_8F_E4M3 || b.type == CUDA_R_8F_E4M3) &&
                     (d.type == CUDA_R_32F || d.type == CUDA_R_16BF || d.type == CUDA_R_16F);
  const bool lies = desc.trans_a == CUBLAS_OP_T && desc.trans_b == CUBLAS_OP_N;
  bool extents = true;
  for (const uint64_t extent : {a.rows, a.cols, b.rows, b.cols, d.rows, d.cols})
    extents = extents && extent % 16 == 0;
  const bool epilogue = desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT ||
                        (desc.epilogue == CUBLASLT_EPILOGUE_BIAS && d.type != CUDA_R_32F);
  return types && lies && extents && epilogue && desc.a_scale != nullptr && desc.b_scale != nullptr;
}
double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x)));
}
double gelu_derivative(double x) {
  const double t = std::tanh(0.79788456080286535588 * (x + 0.044715 * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * 0.79788456080286535588 * (1 + 3 * 0.044715 * x * x);
}

cublasStatus_t multiply(cublasLtHandle_t, cublasLtMatmulDesc_t desc_at, const void* alpha, const void* a,
                        cublasLtMatrixLayout_t a_at, const void* b, cublasLtMatrixLayout_t b_at,
                        const void* beta, const void* c, cublasLtMatrixLayout_t, void* d,
                        cublasLtMatrixLayout_t d_at, const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                        size_t workspace_bytes, cudaStream_t stream) {
  const Desc desc = desc_of(desc_at);
  const Layout la = get<Layout>(a_at), lb = get<Layout>(b_at), ld = get<Layout>(d_at);
  if (algorithm == nullptr || reinterpret_cast<uintptr_t>(workspace) % 256 != 0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto [alignment, place, bias_alignment, aux_alignment] = get<Algorithm>(algorithm);
  if (place >= kWays || alignment == 0) return CUBLAS_STATUS_INVALID_VALUE;
  if (place == kDeclined) return CUBLAS_STATUS_NOT_SUPPORTED;
  if ((reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b) | reinterpret_cast<uintptr_t>(d)) %
          alignment !=
      0)
    return CUBLAS_STATUS_INVALID_VALUE;
  const auto scalar = [&](const void* at) {
    return desc.scale == CUDA_R_64F ? *static_cast<const double*>(at)
                                    : double{*static_cast<const float*>(at)};
  };
  const bool adds = scalar(beta) == 1;
  if (scalar(alpha) != 1 || (scalar(beta) != 0 && !adds)) return CUBLAS_STATUS_NOT_SUPPORTED;
  if (adds && (c == nullptr || reinterpret_cast<uintptr_t>(c) % alignment != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  const bool ta = desc.trans_a == CUBLAS_OP_T, tb = desc.trans_b == CUBLAS_OP_T;
  const auto m = static_cast<int64_t>(ta ? la.cols : la.rows),
             k = static_cast<int64_t>(ta ? la.rows : la.cols);
  const auto n = static_cast<int64_t>(tb ? lb.rows : lb.cols);
  if (static_cast<int64_t>(tb ? lb.cols : lb.rows) != k || static_cast<int64_t>(ld.rows) != m ||
      static_cast<int64_t>(ld.cols) != n || la.ld < static_cast<int64_t>(la.rows) ||
      lb.ld < static_cast<int64_t>(lb.rows) || ld.ld < m)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (la.batches < 1 || lb.batches != la.batches || ld.batches != la.batches)
    return CUBLAS_STATUS_INVALID_VALUE;
  if (la.batches > 1) {
    // Every product's operands lie as the algorithm wants them, and no two results on the same memory.
    for (const Layout& each : {la, lb, ld})
      if (each.batch_stride * value_bytes(each.type) % alignment != 0) return CUBLAS_STATUS_INVALID_VALUE;
    if (ld.batch_stride < ld.ld * (n - 1) + m) return CUBLAS_STATUS_INVALID_VALUE;
    if (desc.epilogue != CUBLASLT_EPILOGUE_DEFAULT) return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  if (desc.compute == CUBLAS_COMPUTE_32F_FAST_TF32 && (la.type != CUDA_R_32F || lb.type != CUDA_R_32F))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  if (!takes(desc, la, lb, ld) || (is_fp8(la.type) && alignment < 16)) return CUBLAS_STATUS_NOT_SUPPORTED;
  // Scales are read on the device.
  if (is_fp8(la.type) &&
      !(emulator::is_device_memory(desc.a_scale) && emulator::is_device_memory(desc.b_scale)))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_bias(desc) && (desc.bias == nullptr || alignment_of(desc.bias) < bias_alignment))
    return CUBLAS_STATUS_INVALID_VALUE;
  if (has_aux(desc) && (desc.aux == nullptr || alignment_of(desc.aux) < aux_alignment || desc.aux_ld < m ||
                        desc.aux_ld % 8 != 0))
    return CUBLAS_STATUS_INVALID_VALUE;
  // Neither the first of them nor the last that is launched is always the fastest.
  const double seconds = place == ((m + n + k) % 2 == 0 ? 1 : 3) ? 0.5e-3 : 1e-3;
  const int64_t part = (k + place) / (place + 1);
  const auto work = [=, place = place] {
    // It is all the product's, which is not to say that an algorithm gets to the end of it.
    constexpr size_t kUnused = 1024;
    if (workspace_bytes > kUnused) std::memset(workspace, 0xff, workspace_bytes - kUnused);
    for (int32_t batch = 0; batch < la.batches; ++batch)
      for (int64_t j = 0; j < n; ++j)
        for (int64_t i = 0; i < m; ++i) {
          const int64_t at = batch * ld.batch_stride + i + j * ld.ld;
          double sum = adds ? load_value(ld.type, c, at) : 0;
          for (int64_t first = 0; first < k; first += part) {
            double partial = 0;
            for (int64_t p = first; p < std::min(k, first + part); ++p)
              partial +=
                  factor_of(desc,
                            load_value(la.type, a,
                                       batch * la.batch_stride + (ta ? p + i * la.ld : i + p * la.ld))) *
                  factor_of(desc, load_value(lb.type, b,
                                             batch * lb.batch_stride + (tb ? j + p * lb.ld : p + j * lb.ld)));
            // Partial sums meet in the compute type.
            sum += place == 0 || desc.compute == CUBLAS_COMPUTE_64F ? partial : static_cast<float>(partial);
          }
          if (is_fp8(la.type)) sum *= static_cast<double>(*desc.a_scale) * static_cast<double>(*desc.b_scale);
          switch (desc.epilogue) {
            case CUBLASLT_EPILOGUE_BIAS: sum += load_value(ld.type, desc.bias, i); break;
            case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
            case CUBLASLT_EPILOGUE_GELU_BIAS: sum += load_value(ld.type, desc.bias, i); [[fallthrough]];
            case CUBLASLT_EPILOGUE_GELU_AUX:
            case CUBLASLT_EPILOGUE_GELU:
              if (has_aux(desc)) store_value(ld.type, desc.aux, i + j * desc.aux_ld, sum);
              sum = gelu(sum);
              break;
            case CUBLASLT_EPILOGUE_DGELU:
              sum *= gelu_derivative(load_value(ld.type, desc.aux, i + j * desc.aux_ld));
              break;
            default: break;
          }
          store_value(ld.type, d, at, sum);
        }
  };
  emulator::enqueue_work(stream, work, seconds);
  return CUBLAS_STATUS_SUCCESS;
}

CublasLt make_lt() {
  CublasLt lt{};
  lt.create = [](cublasLtHandle_t* out) {
    static int handle;
    *out = reinterpret_cast<cublasLtHandle_t>(&handle);
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.matmul = multiply;
  lt.desc_create = [](cublasLtMatmulDesc_t* out, cublasComputeType_t compute, cudaDataType_t scale) {
    *out = new cublasLtMatmulDescOpaque_t{};
    put(*out, Desc{*out, compute, scale, CUBLAS_OP_N, CUBLAS_OP_N, CUBLASLT_EPILOGUE_DEFAULT, nullptr,
                   nullptr, 0, nullptr, nullptr});
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.desc_destroy = [](cublasLtMatmulDesc_t desc) {
    delete desc;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.desc_set = [](cublasLtMatmulDesc_t at, cublasLtMatmulDescAttributes_t attribute, const void* value,
                   size_t bytes) {
    Desc desc = desc_of(at);
    const auto take = [&](auto& field) {
      if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(&field, value, bytes);
      put(at, desc);
      return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
      case CUBLASLT_MATMUL_DESC_TRANSA: return take(desc.trans_a);
      case CUBLASLT_MATMUL_DESC_TRANSB: return take(desc.trans_b);
      case CUBLASLT_MATMUL_DESC_EPILOGUE: return take(desc.epilogue);
      case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return take(desc.bias);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER: return take(desc.aux);
      case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD: return take(desc.aux_ld);
      case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return take(desc.a_scale);
      case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return take(desc.b_scale);
      default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  };
  lt.layout_create = [](cublasLtMatrixLayout_t* out, cudaDataType type, uint64_t rows, uint64_t cols,
                        int64_t ld) {
    *out = new cublasLtMatrixLayoutOpaque_t{};
    put(*out, Layout{type, rows, cols, ld, 1, 0});
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.layout_set = [](cublasLtMatrixLayout_t at, cublasLtMatrixLayoutAttribute_t attribute, const void* value,
                     size_t bytes) {
    Layout layout = get<Layout>(at);
    const auto take = [&](auto& field) {
      if (bytes != sizeof(field)) return CUBLAS_STATUS_INVALID_VALUE;
      std::memcpy(&field, value, bytes);
      put(at, layout);
      return CUBLAS_STATUS_SUCCESS;
    };
    switch (attribute) {
      case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT: return take(layout.batches);
      case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET: return take(layout.batch_stride);
      default: return CUBLAS_STATUS_NOT_SUPPORTED;
    }
  };
  lt.layout_destroy = [](cublasLtMatrixLayout_t layout) {
    delete layout;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.preference_create = [](cublasLtMatmulPreference_t* out) {
    *out = new cublasLtMatmulPreferenceOpaque_t{};
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.preference_destroy = [](cublasLtMatmulPreference_t preference) {
    delete preference;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.preference_set = [](cublasLtMatmulPreference_t at, cublasLtMatmulPreferenceAttributes_t attribute,
                         const void* value, size_t) {
    if (attribute == CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES) std::memcpy(at, value, sizeof(uint32_t));
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.heuristic = [](cublasLtHandle_t, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a,
                    cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t, cublasLtMatrixLayout_t d,
                    cublasLtMatmulPreference_t preference, int wanted, cublasLtMatmulHeuristicResult_t* found,
                    int* count) {
    *count = 0;
    // As in the library, f64 has no epilogues.
    if (get<Layout>(d).type == CUDA_R_64F && desc_of(desc).epilogue != CUBLASLT_EPILOGUE_DEFAULT)
      return CUBLAS_STATUS_NOT_SUPPORTED;
    if (!takes(desc_of(desc), get<Layout>(a), get<Layout>(b), get<Layout>(d)))
      return CUBLAS_STATUS_NOT_SUPPORTED;
    // Where operands of the epilogue lie says how they are aligned, and the value before an activation has to
    // be.
    const Desc with = desc_of(desc);
    if ((has_bias(with) && with.bias == nullptr) || (has_aux(with) && alignment_of(with.aux) < 16))
      return CUBLAS_STATUS_INVALID_VALUE;
    for (uint32_t place = 0; place < kWays && *count < wanted; ++place) {
      cublasLtMatmulHeuristicResult_t& one = found[(*count)++];
      one = {};
      put(&one.algo,
          Algorithm{get<uint32_t>(preference), place, alignment_of(with.bias), alignment_of(with.aux)});
      one.state = CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.algorithm_get = [](const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulAlgoConfigAttributes_t attribute,
                        void* value, size_t bytes, size_t* written) {
    const bool is_short = attribute == CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID ||
                          attribute == CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID;
    if (bytes != (is_short ? sizeof(uint16_t) : sizeof(uint32_t))) return CUBLAS_STATUS_INVALID_VALUE;
    std::memset(value, 0, bytes);
    const uint32_t place = get<Algorithm>(algorithm).place;
    if (attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM) {
      const uint32_t parts = place + 1;
      std::memcpy(value, &parts, bytes);
    }
    *written = bytes;
    return CUBLAS_STATUS_SUCCESS;
  };
  lt.version = []() -> size_t { return 130000; };
  return lt;
}

}  // namespace

Result<const CublasLt*> cublas_lt() {
  static const CublasLt lt = make_lt();
  return &lt;
}

}  // namespace tessera::cuda

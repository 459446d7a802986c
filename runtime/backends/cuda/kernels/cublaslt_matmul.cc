// cuBLASLt is column-major, so C^T = op(B)^T op(A)^T is computed, with operands exchanged. The algorithm is a tuned one,
// found by its tag, or the heuristic's first.
#include "runtime/backends/cuda/kernels/cublaslt_matmul.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <mutex>

#include "graph/base/hash.h"
#include "graph/base/text.h"
#include "runtime/backends/cuda/cuda_status.h"

namespace tessera::cuda {

namespace {

Status from_cublas(cublasStatus_t status, std::string_view what) {
  if (status == CUBLAS_STATUS_SUCCESS) return {};
  const StatusCode code =
      status == CUBLAS_STATUS_NOT_SUPPORTED ? StatusCode::kUnsupported : StatusCode::kInternal;
  return Status(code, format("cuBLASLt: {} failed with status {}", what, static_cast<int32_t>(status)));
}

struct Types {
  cudaDataType_t data, scale;
  cublasComputeType_t compute;
};

// f32 is computed in f32: TF32 only on request.
Result<Types> types_of(DType dtype, bool tf32 = false) {
  switch (dtype) {
    case DType::kF32:
      return Types{CUDA_R_32F, CUDA_R_32F, tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F};
    case DType::kF64: return Types{CUDA_R_64F, CUDA_R_64F, CUBLAS_COMPUTE_64F};
    case DType::kF16: return Types{CUDA_R_16F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kBF16: return Types{CUDA_R_16BF, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kE4M3: return Types{CUDA_R_8F_E4M3, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case DType::kE5M2: return Types{CUDA_R_8F_E5M2, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    default: return Status(StatusCode::kUnsupported, format("cuBLASLt: no products of {}", to_text(dtype)));
  }
}

// One handle a device, never destroyed: it belongs to the primary context.
Result<cublasLtHandle_t> handle_of_current_device(const CublasLt& lt) {
  static std::mutex mutex;
  static std::map<int, cublasLtHandle_t> handles;
  int device = 0;
  TSR_RETURN_IF_ERROR(from_cuda(cudaGetDevice(&device), "cudaGetDevice"));
  const std::lock_guard lock(mutex);
  if (const auto found = handles.find(device); found != handles.end()) return found->second;
  cublasLtHandle_t handle = nullptr;
  TSR_RETURN_IF_ERROR(from_cublas(lt.create(&handle), "cublasLtCreate"));
  handles.emplace(device, handle);
  return handle;
}

constexpr float kSomeScale = 1;
constexpr int64_t kWorkspaceUnit = 256;  // what cuBLASLt wants its workspace aligned to

// Workspace for partial results of split sums: four parts. Where few results are long sums, as gradients of
// weights are, as many parts of at least 512 addends as give each of 132 multiprocessors two tiles of 128 x
// 128 results. (768 x 768 results are 36 tiles: with four parts 144, little more than half of two waves.)
int64_t library_workspace_bytes(const LtShape& shape) {
  constexpr int64_t kMost = int64_t{32} << 20, kShortest = 512;
  constexpr double kResults = 2.0 * 132 * 128 * 128, kFew = 4;
  const double results = static_cast<double>(shape.batches * shape.M) * static_cast<double>(shape.N);
  const double useful = std::min(static_cast<double>(shape.K / kShortest), std::ceil(kResults / results));
  const double wanted = sizeof(float) * std::max(kFew, useful) * results + (64 << 10);
  const int64_t bytes =
      wanted < static_cast<double>(kMost)
          ? (static_cast<int64_t>(wanted) + kWorkspaceUnit - 1) / kWorkspaceUnit * kWorkspaceUnit
          : kMost;
  return std::min(bytes, shape.most_workspace - kWorkspaceUnit);  // slots are aligned to less
}

cublasLtEpilogue_t epilogue_of(const LtShape& shape) {
  if (shape.has_gelu_grad) return CUBLASLT_EPILOGUE_DGELU;
  if (shape.has_gelu && shape.has_pre)
    return shape.has_bias ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_GELU_AUX;
  if (shape.has_gelu) return shape.has_bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return shape.has_bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

}  // namespace

int64_t CublasLtMatmul::workspace_bytes(const LtShape& shape) {
  return library_workspace_bytes(shape) + kWorkspaceUnit;
}

Result<std::shared_ptr<const CublasLtMatmul>> CublasLtMatmul::create(const LtShape& shape,
                                                                     std::string_view algorithm) {
  std::shared_ptr<CublasLtMatmul> made(new CublasLtMatmul());
  TSR_RETURN_IF_ERROR(made->initialize(shape, algorithm));
  return std::shared_ptr<const CublasLtMatmul>(std::move(made));
}

CublasLtMatmul::~CublasLtMatmul() {
  if (lt_ == nullptr) return;
  for (cublasLtMatrixLayout_t layout : {a_, b_, c_})
    if (layout != nullptr) lt_->layout_destroy(layout);
  for (const cublasLtMatmulDesc_t desc : descs_) lt_->desc_destroy(desc);
}

// cuBLASLt is column-major, so a row-major matrix is its own transpose: C^T [N, M] =
// op(B)^T op(A)^T. Its first operand is B, its second A; transposition flags carry over.
Status CublasLtMatmul::initialize(const LtShape& shape, std::string_view algorithm) {
  shape_ = shape;
  TSR_ASSIGN_OR_RETURN(lt_, cublas_lt());
  TSR_ASSIGN_OR_RETURN(handle_, handle_of_current_device(*lt_));
  TSR_ASSIGN_OR_RETURN(const Types types, types_of(shape.dtype, shape.tf32));
  f64_ = shape.dtype == DType::kF64;
  workspace_bytes_ = library_workspace_bytes(shape);
  if ((shape.has_gelu || shape.has_gelu_grad) &&
      (shape.N % 8 != 0 || (shape.dtype != DType::kF16 && shape.dtype != DType::kBF16)))
    return Status(StatusCode::kUnsupported, "cuBLASLt: gelu of f16 and bf16, rows of a multiple of 8");

  if (shape.batches > std::numeric_limits<int32_t>::max())
    return Status(StatusCode::kUnsupported, format("cuBLASLt: {} products at once", shape.batches));

  cudaDataType_t data = types.data;
  if (shape.scaled) {
    TSR_ASSIGN_OR_RETURN(const Types b_types, types_of(shape.b_dtype));
    data = b_types.data;
  }
  TSR_ASSIGN_OR_RETURN(const cublasLtMatmulDesc_t desc, make_desc());
  give_back(desc);
  const auto layout = [&](cublasLtMatrixLayout_t& out, const std::optional<int64_t>& batch_stride,
                          int64_t rows, int64_t cols, int64_t ld = 0) -> Status {
    if (ld == 0) ld = rows;
    TSR_RETURN_IF_ERROR(from_cublas(
        lt_->layout_create(&out, data, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), ld),
        "a layout"));
    if (shape.batches == 1) return {};
    const auto count = static_cast<int32_t>(shape.batches);
    const int64_t stride = batch_stride.value_or(ld * cols);
    TSR_RETURN_IF_ERROR(from_cublas(
        lt_->layout_set(out, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof(count)), "a batch"));
    return from_cublas(
        lt_->layout_set(out, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &stride, sizeof(stride)),
        "a batch");
  };
  TSR_RETURN_IF_ERROR(shape.trans_b ? layout(b_, shape.b_stride, shape.K, shape.N)
                                    : layout(b_, shape.b_stride, shape.N, shape.K));
  data = types.data;
  TSR_RETURN_IF_ERROR(shape.trans_a ? layout(a_, shape.a_stride, shape.M, shape.K, shape.a_row)
                                    : layout(a_, shape.a_stride, shape.K, shape.M, shape.a_row));
  if (shape.wide_c && !f64_) data = CUDA_R_32F;
  if (shape.scaled) {
    TSR_ASSIGN_OR_RETURN(const Types c_types, types_of(shape.c_dtype));
    data = c_types.data;
  }
  TSR_RETURN_IF_ERROR(layout(c_, shape.c_stride, shape.N, shape.M, shape.c_row));

  // An algorithm for less alignment also works with more.
  const auto least = static_cast<uint32_t>(shape.scaled ? kAlignment : dtype_bytes(shape.dtype, 1));
  const auto anywhere = proposals(least, 1);
  if (anywhere.ok()) aligned_ = unaligned_ = anywhere.value()[0];
  takes_unaligned_ = anywhere.ok() && !shape.scaled;
  if (!algorithm.empty()) {
    TSR_ASSIGN_OR_RETURN(aligned_, algorithm_of(algorithm));
  } else if (const auto aligned = proposals(alignment(), 1); aligned.ok()) {
    aligned_ = aligned.value()[0];
  } else if (!anywhere.ok()) {
    return aligned.status();
  }
  // Epilogues may want alignment, which slots have.
  if (!anywhere.ok() && epilogue_of(shape) == CUBLASLT_EPILOGUE_DEFAULT) return anywhere.status();
  return {};
}

Result<cublasLtMatmulDesc_t> CublasLtMatmul::make_desc() const {
  TSR_ASSIGN_OR_RETURN(const Types types, types_of(shape_.dtype, shape_.tf32));
  cublasLtMatmulDesc_t desc = nullptr;
  TSR_RETURN_IF_ERROR(from_cublas(lt_->desc_create(&desc, types.compute, types.scale), "a descriptor"));
  Status status;
  const auto set = [&](cublasLtMatmulDescAttributes_t attribute, const auto& value, std::string_view what) {
    if (status.ok()) status = from_cublas(lt_->desc_set(desc, attribute, &value, sizeof(value)), what);
  };
  const cublasOperation_t op_b = shape_.trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t op_a = shape_.trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  set(CUBLASLT_MATMUL_DESC_TRANSA, op_b, "an attribute");
  set(CUBLASLT_MATMUL_DESC_TRANSB, op_a, "an attribute");
  // A bias is as long as C^T has rows: N.
  if (const cublasLtEpilogue_t epilogue = epilogue_of(shape_); epilogue != CUBLASLT_EPILOGUE_DEFAULT)
    set(CUBLASLT_MATMUL_DESC_EPILOGUE, epilogue, "an epilogue");
  // Computed as C^T.
  if (shape_.has_gelu_grad || (shape_.has_gelu && shape_.has_pre))
    set(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, shape_.N, "an epilogue");
  if (shape_.scaled) {
    // The heuristic only checks that scales exist; launches give their addresses.
    const void* somewhere = &kSomeScale;
    set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, somewhere, "a scale");
    set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, somewhere, "a scale");
  }
  if (!status.ok()) {
    lt_->desc_destroy(desc);
    return status;
  }
  return desc;
}

Result<cublasLtMatmulDesc_t> CublasLtMatmul::take_desc() const {
  {
    const std::lock_guard lock(mutex_);
    if (!descs_.empty()) {
      const cublasLtMatmulDesc_t desc = descs_.back();
      descs_.pop_back();
      return desc;
    }
  }
  return make_desc();  // another rank has it
}

void CublasLtMatmul::give_back(cublasLtMatmulDesc_t desc) const {
  const std::lock_guard lock(mutex_);
  descs_.push_back(desc);
}

std::string CublasLtMatmul::text() const {
  return format("{}{} x {} x {} of {}{} (epilogue {})",
                shape_.batches == 1 ? std::string() : format("{} times ", shape_.batches), shape_.M, shape_.N,
                shape_.K, to_text(shape_.dtype), shape_.tf32 ? " as TF32" : "",
                static_cast<int32_t>(epilogue_of(shape_)));
}

DType CublasLtMatmul::c_type() const {
  if (shape_.scaled) return shape_.c_dtype;
  return shape_.wide_c && !f64_ ? DType::kF32 : shape_.dtype;
}

uint32_t CublasLtMatmul::alignment() const {
  if (shape_.batches == 1) return kAlignment;
  const auto strides =
      static_cast<uint64_t>(dtype_bytes(shape_.dtype, shape_.a_stride.value_or(shape_.a_elements())) |
                            dtype_bytes(shape_.dtype, shape_.b_stride.value_or(shape_.b_elements())) |
                            dtype_bytes(c_type(), shape_.c_stride.value_or(shape_.c_elements())));
  return static_cast<uint32_t>(std::min(uint64_t{kAlignment}, strides & (~strides + 1)));
}

Result<std::vector<cublasLtMatmulAlgo_t>> CublasLtMatmul::proposals(uint32_t alignment, int count) const {
  cublasLtMatmulPreference_t preference = nullptr;
  TSR_ASSIGN_OR_RETURN(const cublasLtMatmulDesc_t local, make_desc());
  Status status = from_cublas(lt_->preference_create(&preference), "a preference");
  const auto set = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
    if (status.ok())
      status = from_cublas(lt_->preference_set(preference, attribute, &value, sizeof(value)), "a preference");
  };
  const auto most = static_cast<uint64_t>(workspace_bytes_);
  set(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, most);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment);
  set(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment);
  // Partial sums are added in the compute type and in one order; never in the output.
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  set(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, schemes);
  // The heuristic learns the alignment of the epilogue's operands from their addresses only: give it
  // addresses with exactly that alignment. The value before an activation is always at a multiple of 16
  // bytes.
  constexpr uintptr_t kPlace = uintptr_t{1} << 20;
  if (shape_.has_bias) {
    const uintptr_t bias = kPlace + alignment;
    if (status.ok())
      status =
          from_cublas(lt_->desc_set(local, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "a bias");
  }
  if (shape_.has_pre || shape_.has_gelu_grad) {
    const uintptr_t pre = kPlace + kAlignment;
    if (status.ok())
      status = from_cublas(lt_->desc_set(local, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &pre, sizeof(pre)),
                           "an epilogue");
  }
  std::vector<cublasLtMatmulHeuristicResult_t> found(static_cast<size_t>(count));
  int returned = 0;
  if (status.ok())
    status = from_cublas(
        lt_->heuristic(handle_, local, b_, a_, c_, c_, preference, count, found.data(), &returned),
        "the heuristic");
  if (preference != nullptr) lt_->preference_destroy(preference);
  lt_->desc_destroy(local);
  std::vector<cublasLtMatmulAlgo_t> usable;
  for (int i = 0; status.ok() && i < returned; ++i)
    if (found[static_cast<size_t>(i)].state == CUBLAS_STATUS_SUCCESS)
      usable.push_back(found[static_cast<size_t>(i)].algo);
  // Whatever the heuristic's reason, another kernel does the matmul.
  if (usable.empty())
    return Status(StatusCode::kUnsupported, format("cuBLASLt has no algorithm for {}{}{}", text(),
                                                   status.ok() ? "" : ": ", status.message()));
  return usable;
}

std::string CublasLtMatmul::algorithm_tag(size_t place, const cublasLtMatmulAlgo_t& algorithm) const {
  Hash hash;
  const auto add = [&](cublasLtMatmulAlgoConfigAttributes_t attribute, auto value) {
    size_t written = 0;
    const cublasStatus_t status = lt_->algorithm_get(&algorithm, attribute, &value, sizeof(value), &written);
    // An algorithm need not have every attribute.
    hash.add(status == CUBLAS_STATUS_SUCCESS ? uint64_t{value} : ~uint64_t{0});
  };
  for (const auto attribute :
       {CUBLASLT_ALGO_CONFIG_ID, CUBLASLT_ALGO_CONFIG_TILE_ID, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, CUBLASLT_ALGO_CONFIG_STAGES_ID})
    add(attribute, uint32_t{0});
  for (const auto attribute : {CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID})
    add(attribute, uint16_t{0});
  char word[8];
  std::snprintf(word, sizeof(word), "%zx%03x", place, static_cast<unsigned>(hash.value() >> 52));
  return word;
}

Result<cublasLtMatmulAlgo_t> CublasLtMatmul::algorithm_of(std::string_view word) const {
  TSR_ASSIGN_OR_RETURN(const auto proposed, proposals(alignment(), kProposals));
  for (size_t place = 0; place < proposed.size(); ++place)
    if (algorithm_tag(place, proposed[place]) == word) return proposed[place];
  return Status(StatusCode::kFailedPrecondition,
                format("cuBLASLt {} does not propose the algorithm '{}' for {}: plan again, with times taken "
                       "on this machine",
                       lt_->version(), word, text()));
}

Status CublasLtMatmul::launch(const LtOperands& operands, void* workspace, cudaStream_t stream) const {
  const auto address = [](const void* pointer) { return reinterpret_cast<uintptr_t>(pointer); };
  const bool is_aligned = (address(operands.a) | address(operands.b) | address(operands.c) |
                           address(operands.bias) | address(operands.pre) | address(operands.addend)) %
                              kAlignment ==
                          0;
  if ((!is_aligned && !takes_unaligned_) || address(operands.pre) % kAlignment != 0)
    return Status(
        StatusCode::kInvalidArgument,
        format("cuBLASLt: operands of {} lie at addresses that are no multiples of {}", text(), kAlignment));
  return launch_as(is_aligned ? aligned_ : unaligned_, operands, workspace, stream);
}

Status CublasLtMatmul::launch_as(const cublasLtMatmulAlgo_t& algorithm, const LtOperands& operands,
                                 void* workspace, cudaStream_t stream) const {
  TSR_ASSIGN_OR_RETURN(const cublasLtMatmulDesc_t desc, take_desc());
  const Status status = launch_with(desc, algorithm, operands, workspace, stream);
  give_back(desc);
  return status;
}

Status CublasLtMatmul::launch_with(cublasLtMatmulDesc_t desc, const cublasLtMatmulAlgo_t& algorithm,
                                   const LtOperands& operands, void* workspace, cudaStream_t stream) const {
  workspace = reinterpret_cast<void*>((reinterpret_cast<uintptr_t>(workspace) + kWorkspaceUnit - 1) /
                                      kWorkspaceUnit * kWorkspaceUnit);
  const float one = 1, zero = 0;
  const double one_f64 = 1, zero_f64 = 0;
  const void* beta = f64_          ? static_cast<const void*>(shape_.adds ? &one_f64 : &zero_f64)
                     : shape_.adds ? &one
                                   : &zero;
  const auto& [a, b, c, bias, pre, addend, a_scale, b_scale] = operands;
  if (shape_.scaled) {  // as operands, scales change places
    TSR_RETURN_IF_ERROR(from_cublas(
        lt_->desc_set(desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &b_scale, sizeof(b_scale)), "a scale"));
    TSR_RETURN_IF_ERROR(from_cublas(
        lt_->desc_set(desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &a_scale, sizeof(a_scale)), "a scale"));
  }
  if (bias != nullptr)
    TSR_RETURN_IF_ERROR(
        from_cublas(lt_->desc_set(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias, sizeof(bias)), "a bias"));
  if (pre != nullptr)
    TSR_RETURN_IF_ERROR(from_cublas(
        lt_->desc_set(desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &pre, sizeof(pre)), "an epilogue"));
  return from_cublas(lt_->matmul(handle_, desc, f64_ ? static_cast<const void*>(&one_f64) : &one, b, b_, a,
                                 a_, beta, shape_.adds ? addend : c, c_, c, c_, &algorithm, workspace,
                                 static_cast<size_t>(workspace_bytes_), stream),
                     "the product");
}

}  // namespace tessera::cuda

#include <utility>

#include "graph/base/dtype.h"
#include "runtime/backends/cuda/kernels/lt_prepared.h"
#include "runtime/backends/cuda/operand_ranges.h"

namespace tessera::cuda {

namespace {

// Largest result, of one matmul, that is worth fusing: four waves of tiles of 128 x 256 on 132
// multiprocessors. Beyond, the last wave matters little.
constexpr int64_t kMostResults = int64_t{4} * 132 * 128 * 256;

class ProductKernel final : public Kernel {
 public:
  ProductKernel(const LtShape& shape, std::shared_ptr<const CublasLtMatmul> product, bool may_pair)
      : shape_(shape),
        product_(std::move(product)),
        may_pair_(may_pair && shape.M * shape.N <= kMostResults && shape.dtype != DType::kF64) {}

  Status launch(const LaunchArgs& args) const override {
    return product_->launch({.a = args.inputs[0], .b = args.inputs[1], .c = args.outputs[0]}, args.workspace,
                            args.stream);
  }
  bool fuses() const override { return may_pair_; }
  Fused fuse(std::span<const ComingLaunch> coming) const override;

 private:
  bool pairs_with(const ProductKernel& other) const {
    const LtShape &a = shape_, &b = other.shape_;
    return other.may_pair_ && a.M == b.M && a.N == b.N && a.K == b.K && a.trans_b == b.trans_b &&
           a.dtype == b.dtype && a.tf32 == b.tf32;
  }

  const LtShape shape_;
  const std::shared_ptr<const CublasLtMatmul> product_;
  const bool may_pair_;
};

// Both become one batch: right operands and results are at a stride of whole elements, the left operand is
// shared. Strides must not be negative: the library's tiles are fetched by descriptors without room for that.
Fused ProductKernel::fuse(std::span<const ComingLaunch> coming) const {
  const auto* other = coming.size() < 2 ? nullptr : dynamic_cast<const ProductKernel*>(coming[1].kernel);
  if (other == nullptr || !pairs_with(*other)) return {};
  const LaunchArgs &one = coming[0].args, &two = coming[1].args;
  if (one.inputs[0] != two.inputs[0]) return {};
  const auto distance = [](const void* from, const void* to) {
    return static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) - reinterpret_cast<uintptr_t>(from));
  };
  const int64_t element = dtype_bytes(shape_.dtype, 1);
  const int64_t to_b = distance(one.inputs[1], two.inputs[1]),
                to_c = distance(one.outputs[0], two.outputs[0]);
  const bool swapped = to_b < 0;
  LtShape pair = shape_;
  pair.batches = 2;
  pair.a_stride = 0;
  pair.b_stride = (swapped ? -to_b : to_b) / element;
  pair.c_stride = (swapped ? -to_c : to_c) / element;
  if (to_b % element != 0 || to_c % element != 0 || *pair.b_stride < shape_.b_elements() ||
      *pair.c_stride < shape_.c_elements())
    return {};
  // The second launch's workspace is apart from the first one's results, but inputs of the first alone may be
  // where the second writes.
  pair.most_workspace = CublasLtMatmul::workspace_bytes(shape_);
  const auto bytes = [&](int64_t elements) { return elements * element; };
  OperandRanges touched;
  touched.add({one.inputs[0], bytes(shape_.a_elements()), false});
  touched.add({one.inputs[1], bytes(shape_.b_elements()), false});
  touched.add({two.inputs[1], bytes(shape_.b_elements()), false});
  for (const OperandRange& written : {OperandRange{one.outputs[0], bytes(shape_.c_elements()), true},
                                      OperandRange{two.outputs[0], bytes(shape_.c_elements()), true},
                                      OperandRange{two.workspace, pair.most_workspace, true}}) {
    if (touched.depends(written)) return {};
    touched.add(written);
  }
  Result<std::shared_ptr<const CublasLtMatmul>> product = CublasLtMatmul::create(pair);
  if (!product.ok()) return {};  // the library has none
  const LaunchArgs& first = swapped ? two : one;
  return {make_kernel([product = std::move(product).value(),
                       operands = LtOperands{first.inputs[0], first.inputs[1], first.outputs[0]},
                       workspace = two.workspace](const LaunchArgs& args) {
            return product->launch(operands, workspace, args.stream);
          }),
          2};
}

}  // namespace

std::unique_ptr<Kernel> make_product_kernel(const LtShape& shape,
                                            std::shared_ptr<const CublasLtMatmul> product, bool may_pair) {
  return std::make_unique<ProductKernel>(shape, std::move(product), may_pair);
}

}  // namespace tessera::cuda

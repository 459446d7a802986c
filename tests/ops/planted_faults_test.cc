// Tests of the tests: a fault planted in an op or a kernel is found by the check that is there for it.
#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>

#include "graph/autodiff.h"
#include "graph/base/text.h"
#include "tests/ops/checks.h"

namespace tessera::conformance {
namespace {

CaseFile cases(std::string_view text) {
  auto file = parse_case_file(format("tolerance 1e-6 \"sums of a few products\"\n{}\n", text), "planted.txt");
  REQUIRE_MESSAGE(file.ok(), std::string(file.status().message()));
  return std::move(file).value();
}

// True when some finding says `what`.
bool found(const Findings& findings, std::string_view what) {
  return std::ranges::any_of(findings,
                             [&](const std::string& text) { return text.find(what) != std::string::npos; });
}

OpDef copy_of(std::string_view op) { return *find_op(op); }

// A kernel for two operands of one float type.
template <class Body>
Result<cpu::PreparedKernel> planted(const KernelSpec& spec, Body body) {
  return cpu::dispatch_float(spec.input_dtype(0), [&](auto zero) -> Result<cpu::PreparedKernel> {
    using T = decltype(zero);
    const int64_t count = spec.output_elements(0);
    cpu::PreparedKernel prepared;
    prepared.kernel = cpu::make_kernel([=](const cpu::LaunchArgs& args) {
      body(args, args.in<T>(0), args.in<T>(1), args.out<T>(0), count);
    });
    return prepared;
  });
}

// The kernels of `op`, with another one in front.
std::vector<cpu::KernelEntry> with_kernel(std::string_view op, cpu::PrepareFn prepare) {
  auto kernels = kernels_of(op);
  kernels.insert(kernels.begin(), {op, "planted", prepare});
  return kernels;
}

CaseFile pairs() { return cases("case f[3, 5], f[3, 5]\ncase f[1], f[1]\ncase f[0, 3], f[0, 3]"); }

TEST_CASE("an_infer_that_gives_another_shape_is_found") {
  OpDef op = copy_of("add");
  op.infer = [](std::span<const TensorType> in, std::span<const Attr>) -> Result<std::vector<TensorType>> {
    TensorType z = in[0];
    if (z.shape.rank() > 0) z.shape.set(0, z.shape[0] + 1);
    return std::vector<TensorType>{z};
  };
  CHECK(found(check_shapes(op, kernels_of("add"), pairs()), "extents differ"));
}

TEST_CASE("an_infer_that_gives_another_dtype_is_found") {
  OpDef op = copy_of("add");
  op.infer = [](std::span<const TensorType> in, std::span<const Attr>) -> Result<std::vector<TensorType>> {
    return std::vector<TensorType>{{DType::kF64, in[0].shape}};
  };
  CHECK(found(check_shapes(op, kernels_of("add"), pairs()), "not every byte"));
}

TEST_CASE("an_infer_that_stumbles_over_symbols_is_found") {
  OpDef op = copy_of("add");
  op.infer = [](std::span<const TensorType> in, std::span<const Attr>) -> Result<std::vector<TensorType>> {
    if (!in[0].shape.is_concrete()) return Status(StatusCode::kInvalidArgument, "negative extent");
    return std::vector<TensorType>{in[0]};
  };
  CHECK(found(check_shapes(op, kernels_of("add"), pairs()), "as a symbol"));
}

TEST_CASE("a_kernel_that_leaves_the_last_element_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs&, const auto* x, const auto* y, auto* z, int64_t count) {
      for (int64_t i = 0; i + 1 < count; ++i) z[i] = x[i] + y[i];
    });
  });
  CHECK(found(check_shapes(copy_of("add"), kernels, pairs()), "not every byte"));
}

TEST_CASE("a_kernel_that_writes_past_the_end_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs&, const auto* x, const auto* y, auto* z, int64_t count) {
      for (int64_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
      std::memset(static_cast<void*>(z + count), 0, 1);
    });
  });
  CHECK(found(check_shapes(copy_of("add"), kernels, pairs()), "outside of its buffers"));
}

TEST_CASE("a_view_that_moves_elements_is_found") {
  OpDef op = copy_of("transpose");
  op.is_view = true;
  CHECK(found(check_shapes(op, kernels_of("transpose"), cases("case f[2, 3] {perm = [1, 0]}")), "a view"));
}

TEST_CASE("a_kernel_that_computes_something_else_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs&, const auto* x, const auto* y, auto* z, int64_t count) {
      for (int64_t i = 0; i < count; ++i) z[i] = i == 7 ? x[i] - y[i] : x[i] + y[i];
    });
  });
  CHECK(found(check_kernels(copy_of("add"), kernels, pairs()), "f32 planted: result 0: element 7"));
}

TEST_CASE("a_kernel_that_is_wrong_in_place_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs&, const auto* x, const auto* y, auto* z, int64_t count) {
      std::fill_n(z, count, 0);  // forgets that z may be x
      for (int64_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
    });
  });
  CHECK(found(check_kernels(copy_of("add"), kernels, pairs()), "in place"));
}

TEST_CASE("a_kernel_whose_bits_depend_on_the_order_of_tasks_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs& args, const auto* x, const auto* y, auto* z,
                            int64_t count) {
      for (int64_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
      if (count < 3) return;
      const auto tiny = z[0] * 1e-8f;
      args.pool.parallel_for(2, [&](int64_t task) { z[0] = task == 0 ? z[0] + tiny : z[0] * (1 + 1e-7f); });
    });
  });
  CHECK(found(check_kernels(copy_of("add"), kernels, pairs()), "order of the pool's tasks"));
}

TEST_CASE("a_kernel_that_changes_an_operand_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec& spec) {
    return planted(spec, [](const cpu::LaunchArgs&, const auto* x, const auto* y, auto* z, int64_t count) {
      for (int64_t i = 0; i < count; ++i) z[i] = x[i] + y[i];
      if (count > 0) std::memset(const_cast<void*>(static_cast<const void*>(y)), 0, 1);
    });
  });
  CHECK(found(check_kernels(copy_of("add"), kernels, pairs()), "changed operand 1"));
}

TEST_CASE("a_variant_that_declines_every_case_is_found") {
  const auto kernels = with_kernel("add", [](const KernelSpec&) -> Result<cpu::PreparedKernel> {
    return Status(StatusCode::kUnsupported, "never in the mood");
  });
  CHECK(found(check_kernels(copy_of("add"), kernels, pairs()), "never in the mood"));
}

TEST_CASE("a_reference_that_contradicts_a_value_worked_out_by_hand_is_found") {
  CHECK(check_kernels(copy_of("add"), kernels_of("add"), cases("case f[2] = 1 2, f[2] = 3 4 gives 4 6"))
            .empty());
  CHECK(
      found(check_kernels(copy_of("add"), kernels_of("add"), cases("case f[2] = 1 2, f[2] = 3 4 gives 4 7")),
            "element 1 is 6"));
}

TEST_CASE("a_wrong_vjp_is_found") {
  OpDef op = copy_of("mul");
  op.vjp = [](VjpBuilder& b) -> Status {  // dx = dz x instead of dz y
    TSR_ASSIGN_OR_RETURN(const TensorId grad, b.emit("mul", {*b.output_grad(0), b.input(0)}));
    return b.set_input_grad(0, grad);
  };
  const Findings findings = check_gradient(op, pairs());
  CHECK(found(findings, "gradient of operand.0"));
  CHECK(found(findings, "gradient of operand.1"));  // forgotten altogether
  CHECK(check_gradient(copy_of("mul"), pairs()).empty());
}

TEST_CASE("a_wrong_vjp_is_found_in_a_gradient_graph") {
  const CaseFile file = cases(
      "case f[3]\n"
      "gradient\n"
      "graph {\n"
      "  parameter x: f64[3]\n"
      "  a = square(x) : f64[3]\n"
      "  b = exp(a) : f64[3]\n"
      "  output b = b\n"
      "}\n"
      "feed x in -1 to 1 away 0.1\n"
      "end");
  OpDef op = copy_of("exp");
  CHECK(check_gradient(op, file).empty());
  op.vjp = [](VjpBuilder& b) -> Status { return b.set_input_grad(0, *b.output_grad(0)); };
  CHECK(found(check_gradient(op, file), "gradient of x"));
}

CaseFile matmul_cases() { return cases("case f[3, 5], f[5, 4]\ncase f[1, 5], f[5, 0]"); }

TEST_CASE("a_rule_with_factors_at_the_wrong_dims_is_found") {
  OpDef op = copy_of("matmul");
  op.sharding = [](const OpView&) { return parse_rule("ak,kn->an"); };
  CHECK(check_sharding(op, kernels_of("matmul"), matmul_cases()).empty());
  op.sharding = [](const OpView&) { return parse_rule("ak,bn->an"); };  // the inner factor as if it were two
  CHECK_FALSE(check_sharding(op, kernels_of("matmul"), matmul_cases()).empty());
}

TEST_CASE("a_rule_that_shards_what_must_be_whole_is_found") {
  OpDef op = copy_of("softmax");
  op.sharding = [](const OpView&) { return parse_rule("ab->ab"); };
  CHECK(
      found(check_sharding(op, kernels_of("softmax"), cases("case f[3, 5]\ncase f[1, 1]")), "b on 2 parts"));
}

TEST_CASE("a_rule_with_the_wrong_reduction_is_found") {
  OpDef op = copy_of("sum_squares");
  op.sharding = [](const OpView&) {
    ShardingRule rule = parse_rule("a->");
    rule.find('a')->reduce = ReduceKind::kMax;
    return rule;
  };
  CHECK_FALSE(check_sharding(op, kernels_of("sum_squares"), cases("case f[5]")).empty());
}

TEST_CASE("a_kernel_that_ignores_its_position_is_found") {
  // Tells every dropout kernel that it holds the beginning of the tensor.
  const std::vector<cpu::KernelEntry> kernels = {
      {"dropout", "reference", [](const KernelSpec& spec) -> Result<cpu::PreparedKernel> {
         std::vector<tsr_abi_factor> factors(spec.desc().factors,
                                             spec.desc().factors + spec.desc().factor_count);
         for (tsr_abi_factor& factor : factors) {
           factor.end[0] -= factor.begin[0];
           factor.begin[0] = 0;
         }
         tsr_abi_kernel_desc desc = spec.desc();
         desc.factors = factors.data();
         return kernels_of("dropout").back().prepare(KernelSpec(desc));
       }}};
  const CaseFile file = cases("case f[4, 6], i64[] = 7 {p = 0.5}");
  CHECK(found(check_sharding(copy_of("dropout"), kernels, file), "on 2 parts"));
  CHECK(check_sharding(copy_of("dropout"), kernels_of("dropout"), file).empty());
}

TEST_CASE("a_bias_added_by_every_shard_of_the_inner_factor_is_found") {
  const std::vector<cpu::KernelEntry> kernels = {
      {"matmul", "reference", [](const KernelSpec& spec) -> Result<cpu::PreparedKernel> {
         tsr_abi_kernel_desc desc = spec.desc();
         std::vector<tsr_abi_factor> factors(desc.factors, desc.factors + desc.factor_count);
         for (tsr_abi_factor& factor : factors) factor.begin[0] = 0;
         desc.factors = factors.data();
         return kernels_of("matmul").back().prepare(KernelSpec(desc));
       }}};
  CHECK(found(check_sharding(copy_of("matmul"), kernels, cases("case f[3, 4], f[4, 5], f[5]")),
              "k on 2 parts"));
}

TEST_CASE("a_linear_set_of_an_op_that_is_not_linear_is_found") {
  OpDef op = copy_of("exp");
  op.sharding = [](const OpView&) {
    ShardingRule rule = parse_rule("a->a");
    rule.linear = {{0}};
    return rule;
  };
  CHECK(found(check_sharding(op, kernels_of("exp"), cases("case f[5]")), "not linear in operands 0"));
}

TEST_CASE("a_linear_set_that_leaves_out_an_operand_is_found") {
  OpDef op = copy_of("add");
  op.sharding = [](const OpView&) {
    ShardingRule rule = parse_rule("ab,ab->ab");
    rule.linear = {{0}};
    return rule;
  };
  CHECK(found(check_sharding(op, kernels_of("add"), cases("case f[3, 5], f[3, 5]")),
              "not linear in operands 0"));
}

TEST_CASE("a_cost_that_falls_faster_than_the_shape_is_found") {
  OpDef op = copy_of("matmul");
  op.cost = [](const OpView& view) {
    OpCost cost = find_op("matmul")->cost(view);
    cost.flops *= static_cast<double>(view.inputs[0].shape.elements());
    return cost;
  };
  CHECK(found(check_cost(op, matmul_cases()), "flops"));
  CHECK(check_cost(copy_of("matmul"), matmul_cases()).empty());
}

TEST_CASE("a_case_file_that_is_missing_or_does_not_say_why_is_refused") {
  CHECK(found({std::string(read_case_file("/nonexistent/op.txt").status().message())}, "does not exist"));
  const auto refused = [](std::string_view text) {
    return std::string(parse_case_file(text, "planted.txt").status().message());
  };
  CHECK(found({refused("tolerance 1e-6\ncase f[2]")}, "planted.txt:1"));
  CHECK(found({refused("case f[2]")}, "no tolerance"));
  CHECK(found({refused("tolerance 0 \"exact\"")}, "no case"));
  CHECK(found({refused("tolerance 0 \"exact\"\ncase x[2]")}, "no element type"));
  CHECK(found({refused("tolerance 0 \"exact\"\nfancy f[2]")}, "no statement"));
  CHECK(found({refused("tolerance 0 \"exact\"\ncase f[2]\ngradient\ngraph {")}, "without end"));
}

}  // namespace
}  // namespace tessera::conformance

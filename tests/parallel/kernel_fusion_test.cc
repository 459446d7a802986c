// Fusions at the lowering of a rank, and cases that must not fuse.
#include "parallel/lowering/kernel_fusion.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "graph/base/text.h"
#include "tests/fusing_catalog.h"
#include "tests/parallel/step_graphs.h"

using namespace tessera;

namespace {

Program lowered(const Graph& graph, const Plan& plan, bool fuses, bool exactly = false) {
  const FakeCatalog apart(256);
  const EntrySpec entry{"main", &graph, &plan};
  const auto program = fuses ? lower(std::span(&entry, 1), FusingCatalog(apart, exactly))
                             : lower(std::span(&entry, 1), apart);
  REQUIRE_MESSAGE(program.ok(), program.status().to_string());
  const Status status = verify(*program);
  REQUIRE_MESSAGE(status.ok(), status.to_string());
  return *program;
}

// The ops of rank 0 in order, of a graph on one device.
std::vector<std::string> ops_of(std::string_view text, bool exactly = false) {
  const auto graph = parse_graph(text);
  REQUIRE_MESSAGE(graph.ok(), graph.status().to_string());
  const auto plan = apply_strategy(*graph, {}, 1);
  REQUIRE(plan.ok());
  const Program program = lowered(*graph, *plan, true, exactly);
  std::vector<std::string> ops;
  for (const Instruction& instruction : program.ranks[0].entries[0].code)
    if (const auto* kernel = std::get_if<KernelInst>(&instruction))
      ops.emplace_back(program.ranks[0].kernels[static_cast<size_t>(kernel->kernel)].op->name);
  return ops;
}

using Ops = std::vector<std::string>;

}  // namespace

TEST_CASE("a sum joins the later of its products") {
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = add(x, y) : f32[4, 8]
    output z = z
  })") == Ops{"matmul_add"});
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter v: f32[8, 8]
    parameter w: f32[8, 8]
    a = matmul(x, v) : f32[4, 8]
    b = matmul(x, w) : f32[4, 8]
    z = add(a, b) : f32[4, 8]
    output z = z
  })") == Ops{"matmul", "matmul_add"});
}

TEST_CASE("a catalog that fuses exactly joins sums in f32 and nothing else") {
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = add(x, y) : f32[4, 8]
    g = matmul(z, w) : f32[4, 8]
    h = relu(g) : f32[4, 8]
    output h = h
  })",
               true) == Ops{"matmul_add", "matmul", "relu"});
  CHECK(ops_of(R"(graph {
    input x: bf16[4, 8]
    parameter w: bf16[8, 8]
    y = matmul(x, w) : bf16[4, 8]
    z = add(x, y) : bf16[4, 8]
    output z = z
  })",
               true) == Ops{"matmul", "add"});
}

TEST_CASE("what something else reads, or what is there too late, is not joined") {
  // The product itself is wanted.
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = add(x, y) : f32[4, 8]
    u = relu(z) : f32[4, 8]
    output u = u
    output y = y
  })") == Ops{"matmul", "add", "relu"});
  // The addend is computed from the product.
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    t = tanh(y) : f32[4, 8]
    z = add(t, y) : f32[4, 8]
    output z = z
  })") == Ops{"matmul", "tanh", "add"});
  // The addend is computed after the product.
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    input q: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    t = tanh(q) : f32[4, 8]
    z = add(y, t) : f32[4, 8]
    output z = z
  })") == Ops{"matmul", "tanh", "add"});
  // A product and itself.
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = add(y, y) : f32[4, 8]
    output z = z
  })") == Ops{"matmul", "add"});
}

TEST_CASE("a sum that is no part of a product joins the norm that reads it first") {
  CHECK(ops_of(R"(graph {
    input x: f32[9, 16]
    input u: f32[9, 16]
    parameter w: f32[16]
    z = add(x, u) : f32[9, 16]
    y, rstd = rms_norm(z, w) : f32[9, 16], f32[9]
    output y = y
  })") == Ops{"add_rms_norm"});
  CHECK(ops_of(R"(graph {
    input x: f32[9, 16]
    input u: f32[9, 16]
    parameter w: f32[16]
    parameter b: f32[16]
    z = add(x, u) : f32[9, 16]
    y, mean, rstd = layer_norm(z, w, b) : f32[9, 16], f32[9], f32[9]
    t = tanh(z) : f32[9, 16]
    output t = t
    output y = y
  })") == Ops{"add_layer_norm", "tanh"});
  // Between them a weight of the norm is made.
  CHECK(ops_of(R"(graph {
    input x: f32[9, 16]
    input u: f32[9, 16]
    parameter v: f32[16]
    z = add(x, u) : f32[9, 16]
    w = tanh(v) : f32[16]
    y, rstd = rms_norm(z, w) : f32[9, 16], f32[9]
    output y = y
  })") == Ops{"tanh", "add_rms_norm"});
  // A few rows, a product that takes the sum, a norm that reads it later than something else.
  CHECK(ops_of(R"(graph {
    input x: f32[4, 16]
    input u: f32[4, 16]
    parameter w: f32[16]
    z = add(x, u) : f32[4, 16]
    y, rstd = rms_norm(z, w) : f32[4, 16], f32[4]
    output y = y
  })") == Ops{"add", "rms_norm"});
  CHECK(ops_of(R"(graph {
    input x: f32[9, 16]
    parameter v: f32[16, 16]
    parameter w: f32[16]
    p = matmul(x, v) : f32[9, 16]
    z = add(x, p) : f32[9, 16]
    y, rstd = rms_norm(z, w) : f32[9, 16], f32[9]
    output y = y
  })") == Ops{"matmul_add", "rms_norm"});
  CHECK(ops_of(R"(graph {
    input x: f32[9, 16]
    input u: f32[9, 16]
    parameter w: f32[16]
    z = add(x, u) : f32[9, 16]
    t = tanh(z) : f32[9, 16]
    y, rstd = rms_norm(z, w) : f32[9, 16], f32[9]
    output t = t
    output y = y
  })") == Ops{"add", "tanh", "rms_norm"});
}

TEST_CASE("a result that lies over what its product reads is not joined") {
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    state h: f32[8, 8]
    y = matmul(h, h) : f32[8, 8]
    z = add(h, y) : f32[8, 8]
    update h <- z
    output z = x
  })") == Ops{"matmul", "add"});
}

TEST_CASE("an activation joins its product, whose value stays") {
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = silu(y) : f32[4, 8]
    t = tanh(y) : f32[4, 8]
    u = add(z, t) : f32[4, 8]
    output u = u
  })") == Ops{"matmul", "tanh", "add"});
  CHECK(ops_of(R"(graph {
    input x: f32[4, 8]
    parameter w: f32[8, 8]
    y = matmul(x, w) : f32[4, 8]
    z = gelu(y) {approximate = "none"} : f32[4, 8]
    output z = z
  })") == Ops{"matmul", "gelu"});
}

TEST_CASE(
    "what a norm's gradient makes is summed by column as it is made, where it is seen with its own rows") {
  const auto ops = [](const std::string& between, const std::string& summed) {
    return ops_of(R"(graph {
    input dy: f32[4, 8]
    input x: f32[4, 8]
    input other: f32[4, 8]
    input mean: f32[4]
    input rstd: f32[4]
    parameter w: f32[8]
    dx = layer_norm_grad_input(dy, x, w, mean, rstd)
    dw, db = layer_norm_grad_weight(dy, x, mean, rstd)
    z = add(dx, other)
    )" + between + R"(
    s = sum_leading()" +
                  summed + R"()
    t = tanh(z)
    output t = t
    output s = s
    output dw = dw
    output db = db
  })");
  };
  CHECK(ops("", "z") == Ops{"layer_norm_grad", "tanh"});
  CHECK(ops("q = tanh(z)", "q") == Ops{"layer_norm_grad", "tanh", "sum_leading", "tanh"});
  // Twice as many rows, half as long.
  CHECK(ops("q = split_dim(z) {dim = 1, inner = 4}", "q") == Ops{"layer_norm_grad", "sum_leading", "tanh"});
}

TEST_CASE("sums of 16-bit numbers that are widened leave in f32, all of a kernel's or none") {
  CHECK(ops_of(R"(graph {
    input dy: bf16[4, 8]
    s = sum_leading(dy) : bf16[8]
    f = cast(s) {dtype = "f32"} : f32[8]
    output f = f
  })") == Ops{"sum_leading"});
  CHECK(ops_of(R"(graph {
    input x: bf16[4, 8]
    input dy: bf16[4, 8]
    s = matmul_weight_grad(x, dy) : bf16[8, 8]
    f = cast(s) {dtype = "f32"} : f32[8, 8]
    output f = f
  })") == Ops{"matmul_weight_grad"});
  // The rounded sums are wanted too; other numbers; what sums nothing.
  CHECK(ops_of(R"(graph {
    input dy: bf16[4, 8]
    s = sum_leading(dy) : bf16[8]
    f = cast(s) {dtype = "f32"} : f32[8]
    t = tanh(s) : bf16[8]
    output f = f
    output t = t
  })") == Ops{"sum_leading", "cast", "tanh"});
  CHECK(ops_of(R"(graph {
    input dy: bf16[4, 8]
    s = sum_leading(dy) : bf16[8]
    f = cast(s) {dtype = "f16"} : f16[8]
    output f = f
  })") == Ops{"sum_leading", "cast"});
  CHECK(ops_of(R"(graph {
    input dy: bf16[4, 8]
    t = tanh(dy) : bf16[4, 8]
    f = cast(t) {dtype = "f32"} : f32[4, 8]
    output f = f
  })") == Ops{"tanh", "cast"});
  const auto norm = [](const std::string& of_db) {
    return ops_of(R"(graph {
    input dy: bf16[4, 8]
    input x: bf16[4, 8]
    input mean: f32[4]
    input rstd: f32[4]
    parameter w: bf16[8]
    dx = layer_norm_grad_input(dy, x, w, mean, rstd)
    dw, db = layer_norm_grad_weight(dy, x, mean, rstd)
    t = tanh(dx)
    u = cast(dw) {dtype = "f32"}
    v = )" + of_db +
                  R"(
    s = sum_leading(dx)
    q = cast(s) {dtype = "f32"}
    output t = t
    output u = u
    output v = v
    output q = q
  })");
  };
  CHECK(norm(R"(cast(db) {dtype = "f32"})") == Ops{"layer_norm_grad", "tanh"});
  CHECK(norm("tanh(db)") == Ops{"layer_norm_grad", "tanh", "cast", "tanh", "cast"});
}

TEST_CASE(
    "a training step needs fewer kernels and no more memory, and is joined where no message lies between") {
  const Graph step = training_step("gpt2:L=2,C=32,H=4,V=64,T=16").value();
  for (const std::string_view words : {"single", "dp=2", "tp=2", "tp=2,sp", "mb=2"}) {
    CAPTURE(words);
    const Plan plan = plan_of(step, words, 4, 16).value();
    const Program apart = lowered(step, plan, false), joined = lowered(step, plan, true);
    const RankProgram& rank = joined.ranks[0];
    CHECK(rank.entries[0].code.size() < apart.ranks[0].entries[0].code.size());
    // The gradient of a bias is there before that of the weight that it stood behind.
    constexpr int64_t kBiasBytes = 32 * 4;
    CHECK(rank.arena_bytes <= apart.ranks[0].arena_bytes + kBiasBytes);
    std::vector<int> launches(rank.kernels.size(), 0);
    int sums = 0, norms = 0, activations = 0, biases = 0;
    for (const Instruction& instruction : rank.entries[0].code)
      if (const auto* kernel = std::get_if<KernelInst>(&instruction)) {
        const KernelDesc& desc = rank.kernels[static_cast<size_t>(kernel->kernel)];
        ++launches[static_cast<size_t>(kernel->kernel)];
        sums += desc.op->name == "matmul_add" ? 1 : 0;
        norms += desc.op->name == "layer_norm_grad" ? 1 : 0;
        activations += desc.op->name == "matmul" && desc.outputs.size() == 2 ? 1 : 0;
        biases += desc.op->name == "layer_norm_grad" && desc.outputs.size() == 4 ? 1 : 0;
      }
    for (const int count : launches) CHECK(count > 0);
    const int micro_batches = words == "mb=2" ? 2 : 1;
    // Four sums a block: two residuals, and two that make one gradient of those of q, k and v. Under tensor
    // parallelism the residuals' products are summed over the ranks first.
    CHECK(sums == micro_batches * (words.starts_with("tp") ? 4 : 8));
    // With tokens split (sp) gradients of a norm's weights are summed over ranks, without preventing the fusion.
    CHECK(norms == micro_batches * 5);
    CHECK(activations == micro_batches * 2);
    CHECK(biases == micro_batches * 4);
  }
}

// The CUDA backend's fusion of the launches of a decoding step: fewer launches, with the bits of the separate ones.
#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/ops/cuda_device.h"
#include "tests/ops/cuda_launches.h"

namespace tessera::conformance {
namespace {

// Launches over B x T rows as they are put down, on noise. A result is an offset.
class Steps {
 public:
  Steps(CudaDevice& device, DType dtype, DType weight, int64_t B, int64_t T)
      : device_(device), dtype_(dtype), weight_(weight), B_(B), T_(T) {
    std::vector<double> positions, slots;
    for (int64_t i = 0; i < B * T; ++i) positions.push_back(static_cast<double>(3 + 5 * i));
    for (int64_t i = 0; i < B * T; ++i) slots.push_back(static_cast<double>((i * 5 + 3) % (B * kPage)));
    slots.back() = static_cast<double>(B % 2 == 0 ? B * kPage : -1);  // outside of the pages
    positions_ = layout_.values(DType::kI32, positions);
    slot_ = layout_.values(DType::kI32, slots);
  }
  ~Steps() {
    for (const Placed& each : placed_) device_.api().kernel_destroy(each.kernel);
  }
  Steps(const Steps&) = delete;
  Steps& operator=(const Steps&) = delete;

  int64_t rows() const { return B_ * T_; }
  size_t tensor(int64_t count, size_t off = 0) { return noise(dtype_, count, off); }
  size_t row_tensor(int64_t width, size_t off = 0) { return tensor(rows() * width, off); }

  size_t norm(bool is_layer_norm, size_t x, int64_t K, size_t statistic = SIZE_MAX) {
    std::vector<TensorType> types = {rows_of(K), {dtype_, Shape{K}}};
    std::vector<size_t> inputs = {x, tensor(K)};
    if (is_layer_norm) {
      types.push_back({dtype_, Shape{K}});
      inputs.push_back(tensor(K));
    }
    std::vector<size_t> outputs = {row_tensor(K)};
    const DType wide = dtype_ == DType::kF64 ? DType::kF64 : DType::kF32;
    for (int i = is_layer_norm ? 0 : 1; i < 2; ++i) outputs.push_back(noise(wide, rows()));
    if (statistic != SIZE_MAX) outputs.back() = statistic;
    return put(is_layer_norm ? "layer_norm" : "rms_norm", {}, types, inputs, outputs);
  }

  size_t matmul(size_t x, int64_t K, int64_t N, bool has_bias = false, size_t weight_off = 0) {
    return product_to(row_tensor(N), x, K, N, has_bias, weight_off);
  }
  size_t product_to(size_t y, size_t x, int64_t K, int64_t N, bool has_bias = false, size_t weight_off = 0,
                    const std::string& activation = "none") {
    std::vector<TensorType> types = {rows_of(K)};
    std::vector<size_t> inputs = {x};
    types.push_back({weight_, Shape{N, K}});
    inputs.push_back(noise(weight_, N * K, weight_off));
    if (has_bias) {
      types.push_back({dtype_, Shape{N}});
      inputs.push_back(tensor(N));
    }
    if (weight_ == dtype_)
      return put("matmul", {{"trans_w", int64_t{1}}, {"activation", activation}}, types, inputs, {y});
    return put("quantized_matmul", {}, types, inputs, {y});
  }

  // matmul_add, in place unless `y` says otherwise.
  size_t product_sum(size_t x, size_t addend, int64_t K, int64_t N, size_t y = SIZE_MAX) {
    return put("matmul_add", {{"trans_w", int64_t{1}}},
               {rows_of(K), {dtype_, Shape{N, K}}, rows_of(N), {dtype_, Shape{N}}},
               {x, tensor(N * K), addend, tensor(N)}, {y == SIZE_MAX ? addend : y});
  }
  // A product with a matrix, and a bias, that lie where they are said to.
  size_t product_with(size_t w, size_t bias, size_t x, int64_t K, int64_t N) {
    return put("matmul", {{"trans_w", int64_t{1}}}, {rows_of(K), {dtype_, Shape{N, K}}, {dtype_, Shape{N}}},
               {x, w, bias}, {row_tensor(N)});
  }
  // In place unless `y` is another buffer.
  size_t rope(size_t x, int64_t H, int64_t D, const std::string& style, size_t y = SIZE_MAX) {
    return put("rope", {{"style", style}, {"theta", 500.0}},
               {{dtype_, Shape{B_, T_, H, D}}, {DType::kI32, Shape{B_, T_}}}, {x, positions_},
               {y == SIZE_MAX ? x : y});
  }
  size_t pages(int64_t KV, int64_t D) { return tensor(B_ * kPage * KV * D); }
  void kv_write(size_t pages, size_t x, int64_t KV, int64_t D, size_t y = SIZE_MAX) {
    put("kv_write", {},
        {{dtype_, Shape{B_, kPage, KV, D}}, {dtype_, Shape{B_, T_, KV, D}}, {DType::kI32, Shape{B_, T_}}},
        {pages, x, slot_}, {y == SIZE_MAX ? pages : y});
  }
  size_t map(const std::string& op, const std::vector<Attr>& attrs, const std::vector<size_t>& inputs,
             int64_t width, size_t y) {
    return put(op, attrs, std::vector<TensorType>(inputs.size(), rows_of(width)), inputs, {y});
  }
  size_t add(size_t a, size_t b, int64_t width, size_t y) { return map("add", {}, {a, b}, width, y); }

  // How many launches the backend makes of them, with the same bits everywhere in memory; 0 if not.
  size_t launches() {
    const Outcome out = compare(device_, placed_, layout_.bytes(), !is_askew_);
    const bool is_same = out.separate == out.fused;
    CHECK(is_same);
    CHECK((out.separate == layout_.bytes()) == is_askew_);
    return is_same ? out.launches : 0;
  }
  // A step reads what other threads of it write: it is counted, and not run.
  void is_askew() { is_askew_ = true; }

 private:
  static constexpr int64_t kPage = 6;

  TensorType rows_of(int64_t width) const { return {dtype_, Shape{B_, T_, width}}; }
  size_t noise(DType dtype, int64_t count, size_t off = 0) {
    std::uniform_real_distribution<double> uniform(-1, 1);
    return layout_.fill(
        dtype, count, [&](int64_t) { return uniform(random_); }, off);
  }
  size_t put(const std::string& op, const std::vector<Attr>& attrs, const std::vector<TensorType>& types,
             const std::vector<size_t>& inputs, const std::vector<size_t>& outputs) {
    placed_.push_back({device_.prepare(op, attrs, types), inputs, outputs});
    return outputs[0];
  }

  CudaDevice& device_;
  const DType dtype_, weight_;
  const int64_t B_, T_;
  std::mt19937 random_{7};
  Layout layout_;
  size_t positions_, slot_;
  std::vector<Placed> placed_;
  bool is_askew_ = false;
};

struct Types {
  DType dtype, weight;
};
constexpr Types kTypes[] = {{DType::kF32, DType::kF32},  {DType::kF64, DType::kF64},
                            {DType::kF16, DType::kF16},  {DType::kBF16, DType::kBF16},
                            {DType::kBF16, DType::kF16}, {DType::kF32, DType::kBF16},
                            {DType::kF16, DType::kBF16}, {DType::kF32, DType::kF16}};
struct Extent {
  int64_t B, T;
};
constexpr Extent kRows[] = {{1, 1}, {2, 1}, {1, 3}, {2, 2}};

template <class Body>
void with_types_and_rows(Body body) {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const auto& [dtype, weight] : kTypes)
    for (const auto& [B, T] : kRows) {
      if (!device.has(dtype) || !device.has(weight)) continue;
      CAPTURE(to_text(dtype));
      CAPTURE(to_text(weight));
      CAPTURE(B * T);
      Steps steps(device, dtype, weight, B, T);
      body(steps);
    }
}

TEST_SUITE_BEGIN("gpu");

TEST_CASE("norm_queries_keys_and_values_turned_and_stored_in_pages_are_one_launch") {
  for (const std::string style : {"half", "interleaved"})
    with_types_and_rows([&](Steps& steps) {
      constexpr int64_t K = 96, H = 3, KV = 1, D = 10;  // pairs end amid a group of rows
      const size_t normed = steps.norm(false, steps.row_tensor(K), K);
      const size_t q = steps.rope(steps.matmul(normed, K, H * D), H, D, style);
      const size_t k = steps.rope(steps.matmul(normed, K, KV * D), KV, D, style);
      const size_t v = steps.matmul(normed, K, KV * D);
      steps.kv_write(steps.pages(KV, D), k, KV, D);
      steps.kv_write(steps.pages(KV, D), v, KV, D);
      CHECK(steps.launches() == 1);
      (void)q;
    });
}

TEST_CASE("layer_norm_and_products_with_biases_are_one_launch") {
  with_types_and_rows([&](Steps& steps) {
    constexpr int64_t K = 64, D = 8, H = 3;
    const size_t normed = steps.norm(true, steps.row_tensor(K), K);
    steps.matmul(normed, K, H * D, true);
    const size_t k = steps.matmul(normed, K, H * D, true), v = steps.matmul(normed, K, H * D);
    steps.kv_write(steps.pages(H, D), k, H, D);
    steps.kv_write(steps.pages(H, D), v, H, D);
    CHECK(steps.launches() == 1);
  });
}

TEST_CASE("gate_and_up_with_swiglu_and_the_product_with_what_is_added_are_a_launch_each") {
  with_types_and_rows([&](Steps& steps) {
    constexpr int64_t C = 64, F = 160;
    const size_t x = steps.row_tensor(C), normed = steps.norm(false, x, C);
    const size_t gate = steps.matmul(normed, C, F), up = steps.matmul(normed, C, F, true);
    const size_t hidden = steps.map("swiglu", {}, {gate, up}, F, gate);
    steps.add(x, steps.matmul(hidden, F, C), C, x);
    CHECK(steps.launches() == 2);
  });
}

TEST_CASE("a_product_overlaps_with_the_product_before_it_and_nothing_else") {
  CudaDevice device;
  if (!device.is_there()) return;
  const char* const kind = std::getenv("TESSERA_EMULATED_DEVICE");
  if (!device.is_emulated() || (kind != nullptr && std::string(kind) != "h100")) {
    test::skip("overlaps are counted by an emulated H100 alone");
    return;
  }
  const tsr_backend_api& api = device.api();
  constexpr int64_t K = 64, N = 32;
  const TensorType x{DType::kBF16, Shape{1, 1, K}}, w{DType::kBF16, Shape{N, K}};
  tsr_abi_kernel* matmul = device.prepare("matmul", {{"trans_w", int64_t{1}}}, {x, w});
  tsr_abi_kernel* norm = device.prepare("rms_norm", {}, {x, {DType::kBF16, Shape{K}}});
  std::byte* memory = device.allocate(1 << 16);
  const void* in[] = {memory, memory + 4096};
  void* out[] = {memory + 32768, memory + 40960};
  const auto launch = [&](tsr_abi_kernel* kernel) {
    const size_t before = device.overlaps();
    REQUIRE(take_error(api.kernel_launch(kernel, device.stream(), in, out, nullptr)).ok());
    return device.overlaps() - before;
  };
  CHECK(launch(matmul) == 0);
  CHECK(launch(matmul) == 1);
  CHECK(launch(norm) == 0);
  CHECK(launch(matmul) == 0);
  CHECK(launch(matmul) == 1);
  REQUIRE(take_error(api.fill(device.stream(), memory, 0, 16)).ok());
  CHECK(launch(matmul) == 0);
  REQUIRE(take_error(api.copy(device.stream(), memory, memory + 512, 1, 16, 16, 16)).ok());
  CHECK(launch(matmul) == 0);
  tsr_abi_event* event = nullptr;
  REQUIRE(take_error(api.event_create(device.device(), &event)).ok());
  REQUIRE(take_error(api.event_record(event, device.stream())).ok());
  CHECK(launch(matmul) == 0);
  REQUIRE(take_error(api.stream_wait(device.stream(), event)).ok());
  CHECK(launch(matmul) == 0);
  REQUIRE(take_error(api.capture_begin(device.stream())).ok());
  CHECK(launch(matmul) == 0);
  CHECK(launch(matmul) == 1);
  void* graph = nullptr;
  REQUIRE(take_error(api.capture_end(device.stream(), &graph)).ok());
  CHECK(launch(matmul) == 0);
  REQUIRE(take_error(api.replay(device.stream(), graph)).ok());
  CHECK(launch(matmul) == 0);
  REQUIRE(take_error(api.stream_synchronize(device.stream())).ok());
  api.graph_destroy(graph);
  api.event_destroy(event);
  api.kernel_destroy(matmul);
  api.kernel_destroy(norm);
}

TEST_CASE("a_product_ends_with_an_activation_and_an_addition") {
  with_types_and_rows([&](Steps& steps) {
    constexpr int64_t K = 64, N = 21;
    const size_t x = steps.row_tensor(K);
    for (const auto& [op, attrs] :
         std::vector<std::pair<std::string, std::vector<Attr>>>{{"gelu", {{"approximate", "tanh"}}},
                                                                {"gelu", {{"approximate", "none"}}},
                                                                {"relu", {}},
                                                                {"silu", {}}}) {
      const size_t y = steps.matmul(x, K, N, true), other = steps.row_tensor(N);
      const size_t mapped = steps.map(op, attrs, {y}, N, op == "relu" ? steps.row_tensor(N) : y);
      steps.add(mapped, other, N, op == "silu" ? mapped : steps.row_tensor(N));
    }
    CHECK(steps.launches() == 1);
  });
}

// Rows that a team of 256 threads makes, and enough of them that blocks take several groups.
TEST_CASE("wide_rows_and_many_of_them_are_one_launch") {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const bool is_layer_norm : {false, true})
    for (const auto& [dtype, weight, rows, K, N] : {std::tuple{DType::kBF16, DType::kBF16, 1, 2176, 70},
                                                    std::tuple{DType::kF32, DType::kBF16, 2, 1056, 70},
                                                    std::tuple{DType::kBF16, DType::kF16, 1, 64, 4300},
                                                    std::tuple{DType::kF32, DType::kF32, 3, 16, 4300},
                                                    std::tuple{DType::kF16, DType::kF16, 1, 40, 2500}}) {
      if (!device.has(dtype) || !device.has(weight)) continue;
      CAPTURE(to_text(dtype));
      CAPTURE(N);
      Steps steps(device, dtype, weight, rows, 1);
      const size_t normed = steps.norm(is_layer_norm, steps.row_tensor(K), K);
      const size_t first = steps.matmul(normed, K, N), second = steps.matmul(normed, K, N);
      steps.map("swiglu", {}, {first, second}, N, steps.row_tensor(N));
      CHECK(steps.launches() == 1);
    }
}

// Each of these would be wrong as one launch, or is no product of this kernel.
void launches_are(size_t expected, const std::function<void(Steps&)>& put) {
  CudaDevice device;
  if (!device.is_there()) return;
  for (const auto& [dtype, weight] : {Types{DType::kBF16, DType::kBF16}, Types{DType::kF32, DType::kBF16}}) {
    CAPTURE(to_text(dtype));
    Steps steps(device, dtype, weight, 2, 1);
    put(steps);
    CHECK(steps.launches() == expected);
  }
}
constexpr int64_t K = 64, N = 32;

TEST_CASE("what_is_left_of_a_result_that_another_is_stored_over_does_not_change") {
  // All of it: it is not stored. A part of it: two launches.
  launches_are(1, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.row_tensor(N);
    steps.product_to(y, x, K, N);
    steps.product_to(y, x, K, N);
  });
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.row_tensor(2 * N);
    steps.product_to(y, x, K, N);
    steps.product_to(y + 32, x, K, N);
  });
  // The normed rows, once all products have been made of them.
  launches_are(1, [](Steps& steps) {
    const size_t normed = steps.norm(false, steps.row_tensor(K), K);
    const size_t y = steps.matmul(normed, K, K);
    steps.add(y, steps.row_tensor(K), K, normed);
  });
  launches_are(2, [](Steps& steps) {
    const size_t normed = steps.norm(false, steps.row_tensor(K), K);
    steps.add(steps.matmul(normed, K, K), steps.row_tensor(K), K, normed);
    steps.matmul(normed, K, N);
  });
}

TEST_CASE("a_statistic_lies_where_a_result_will") {
  // In arenas, since nothing reads it: all of it is overwritten, and it is not stored then.
  for (const int64_t at : {0, 32})
    launches_are(1, [&](Steps& steps) {
      const size_t y = steps.row_tensor(N);
      const size_t normed = steps.norm(at == 0, steps.row_tensor(K), K, y + static_cast<size_t>(at));
      steps.product_to(y, normed, K, N);
    });
}

TEST_CASE("a_product_that_adds_before_it_rounds_is_part_of_a_launch_where_its_addend_is_its_own") {
  launches_are(1, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), normed = steps.norm(false, x, K);
    const size_t y = steps.product_sum(normed, steps.row_tensor(N), K, N);
    steps.map("relu", {}, {y}, N, steps.row_tensor(N));
    steps.product_sum(normed, steps.row_tensor(N), K, N, steps.row_tensor(N));
  });
  launches_are(2, [](Steps& steps) {  // the addend is what the norm reads
    const size_t x = steps.row_tensor(K);
    steps.product_sum(steps.norm(false, x, K), x, K, K);
  });
  launches_are(2, [](Steps& steps) {  // or another product's result
    const size_t x = steps.row_tensor(K);
    steps.product_sum(x, steps.product_with(steps.tensor(N * K), steps.tensor(N), x, K, N), K, N);
  });
}

TEST_CASE("a_few_results_are_one_block") {
  launches_are(1, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.matmul(steps.norm(true, x, K), K, 5);
    steps.add(y, steps.row_tensor(5), 5, y);
  });
}

TEST_CASE("what_a_launch_reads_none_of_its_own_steps_writes") {
  // A matrix and a bias that another product of the launch leaves.
  for (const bool is_bias : {false, true})
    launches_are(2, [&](Steps& steps) {
      const size_t x = steps.row_tensor(K);
      const size_t y = steps.product_with(steps.tensor(N * K), steps.tensor(N), x, K, N);
      steps.product_with(is_bias ? steps.tensor(K) : y, is_bias ? y : steps.tensor(1), x, K, 1);
    });
  // The norm's rows, under a result.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K);
    steps.product_to(x, steps.norm(false, x, K), K, N);
  });
  // The norm's rows, under a sum.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K);
    const size_t normed = steps.norm(true, x, K);
    const size_t y = steps.matmul(normed, K, K);
    steps.add(y, steps.row_tensor(K), K, x);
  });
  // The operands of the product itself.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K);
    steps.add(steps.matmul(x, K, K), x, K, x);
  });
  // An addend that lies askew under its sum, and one that is the product.
  launches_are(2, [](Steps& steps) {
    const size_t y = steps.matmul(steps.row_tensor(K), K, N), other = steps.row_tensor(2 * N);
    steps.add(y, other + 16, N, other);
    steps.is_askew();
  });
  launches_are(2, [](Steps& steps) {
    const size_t y = steps.matmul(steps.row_tensor(K), K, N);
    steps.add(y, y, N, y);
  });
  // An addend that another product of the launch leaves.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), a = steps.matmul(x, K, N), b = steps.matmul(x, K, N);
    steps.add(a, b, N, steps.row_tensor(N));
  });
}

TEST_CASE("an_operand_stored_to_in_between_begins_a_new_launch") {
  // The result, by something else than what it is part of.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.row_tensor(N);
    steps.product_to(y, x, K, N);
    steps.product_to(y, x, K, N);
    steps.map("relu", {}, {y}, N, y);
    steps.map("silu", {}, {y}, N, y);  // a second activation
  });
  launches_are(3, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.matmul(x, K, K);
    steps.map("relu", {}, {x}, K, x);  // not of a product
    steps.matmul(x, K, N);
    (void)y;
  });
  // The gate after the gated, and other rows.
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), gate = steps.matmul(x, K, N), up = steps.matmul(x, K, N);
    steps.map("swiglu", {}, {up, gate}, N, steps.row_tensor(N));
  });
  launches_are(2, [](Steps& steps) {
    steps.matmul(steps.row_tensor(K), K, N);
    steps.matmul(steps.row_tensor(K), K, N);
  });
}

TEST_CASE("pages_are_written_in_the_launch_only_where_nothing_else_lies") {
  constexpr int64_t KV = 4, D = 8;
  launches_are(1, [](Steps& steps) {
    const size_t y = steps.matmul(steps.row_tensor(K), K, N);
    steps.kv_write(steps.pages(KV, D), y, KV, D);
  });
  launches_are(2, [](Steps& steps) {  // both into the same pages
    const size_t x = steps.row_tensor(K), y = steps.matmul(x, K, N), z = steps.matmul(x, K, N);
    const size_t pages = steps.pages(KV, D);
    steps.kv_write(pages, y, KV, D);
    steps.kv_write(pages, z, KV, D);
  });
  launches_are(2, [](Steps& steps) {  // not in place: a copy comes first
    const size_t y = steps.matmul(steps.row_tensor(K), K, N);
    steps.kv_write(steps.pages(KV, D), y, KV, D, steps.pages(KV, D));
  });
  launches_are(2, [](Steps& steps) {  // turned after it was stored
    const size_t y = steps.matmul(steps.row_tensor(K), K, N);
    steps.kv_write(steps.pages(KV, D), y, KV, D);
    steps.rope(y, KV, D, "half");
  });
}

TEST_CASE("rope_to_another_place_and_over_part_of_one") {
  constexpr int64_t H = 4, D = 8;
  launches_are(1, [](Steps& steps) {
    const size_t x = steps.row_tensor(K);
    steps.rope(steps.matmul(x, K, N), H, D, "half", steps.row_tensor(N));
  });
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K), y = steps.row_tensor(2 * N);
    steps.rope(steps.product_to(y, x, K, N), H, D, "half", y + 16);
    steps.is_askew();
  });
}

TEST_CASE("operands_at_no_multiple_of_16_bytes_keep_their_own_launches") {
  launches_are(2, [](Steps& steps) {
    const size_t x = steps.row_tensor(K);
    steps.matmul(x, K, N);
    steps.matmul(x, K, N, false, 8);
  });
  launches_are(2, [](Steps& steps) { steps.matmul(steps.norm(false, steps.row_tensor(K, 4), K), K, N); });
  // Operands of sums and rotations may have any address.
  launches_are(1, [](Steps& steps) {
    const size_t y = steps.matmul(steps.row_tensor(K), K, N);
    steps.add(y, steps.row_tensor(N, 4), N, steps.row_tensor(N, 4));
  });
}

TEST_SUITE_END();

}  // namespace
}  // namespace tessera::conformance

#include "engine/program/price_grids.h"

#include <string_view>

#include "graph/base/text.h"

namespace tessera {

namespace {

// Marks of the grids. Time is linear between marks, apart from
// cache effects; a factor of three to four is fine enough.
const std::vector<double> kRows = {1, 4, 16, 64, 256, 1024}, kWidths = {16, 64, 192, 512, 2048};
// Marks for rarely used element types, and for short calibrations.
const std::vector<double> kFewRows = {16, 256}, kFewWidths = {16, 64, 256};
const std::vector<double> kHeads = {2, 16}, kHeadSizes = {16, 64, 128};
const std::vector<double> kCausalTokens = {32, 128, 512}, kAllTokens = {64, 256};

// Else a gradient: its second operand is that of results.
bool reads_weight(std::string_view op) { return find_op(op)->weight.operand >= 0; }

int64_t whole(double value) { return static_cast<int64_t>(value); }

PriceGrid product_grid(DType dtype, const std::string& op, int64_t trans_w, bool is_whole) {
  const std::vector<double>& rows = is_whole ? kRows : kFewRows;
  const std::vector<double>& widths = is_whole ? kWidths : kFewWidths;
  const bool is_f32 = dtype == DType::kF32;
  PriceGrid grid;
  grid.name = is_f32 ? format("matrix products ({}, trans_w = {})", op, trans_w)
                     : format("matrix products in {}", info(dtype).name);
  grid.weight = is_f32 || is_whole ? 4 : 0.7;
  grid.table = {
      op, is_f32 ? format("trans_w={}", trans_w) : "", dtype, {"*", "k", "n"}, {rows, widths, widths}, {},
      {}};
  for (const double m : rows)
    for (const double k : widths)
      for (const double n : widths) {
        const TensorType x{dtype, Shape{whole(m), whole(k)}}, dy{dtype, Shape{whole(m), whole(n)}};
        const TensorType w{dtype, trans_w == 1 ? Shape{whole(n), whole(k)} : Shape{whole(k), whole(n)}};
        grid.probes.push_back({op, {{"trans_w", trans_w}}, {x, reads_weight(op) ? w : dy}});
      }
  return grid;
}

PriceGrid tf32_grid(const std::string& op, bool is_whole) {
  PriceGrid grid = product_grid(DType::kF32, op, 0, is_whole);
  grid.name = format("matrix products in tf32 ({})", op);
  grid.table.form = "allow_tf32=1";
  for (Probe& probe : grid.probes) probe.attrs.push_back({"allow_tf32", int64_t{1}});
  return grid;
}

// Both operands are e4m3: gradients in e5m2 take as long, but random codes may be infinite.
PriceGrid fp8_grid(const std::string& op, int64_t trans_w, bool is_whole) {
  constexpr DType kCodes = DType::kE4M3;
  const bool is_gradient = !reads_weight(op);
  PriceGrid grid = product_grid(kCodes, is_gradient ? "matmul_weight_grad" : "matmul", trans_w, is_whole);
  grid.table.op = op;
  grid.table.form = is_gradient ? "" : format("trans_w={}", trans_w);
  grid.table.dtype = is_gradient ? DType::kF32 : DType::kBF16;  // of results
  for (Probe& probe : grid.probes) {
    probe.op = op;
    probe.inputs.resize(4, {DType::kF32, Shape{}});  // scales
    if (!is_gradient) probe.attrs.push_back({"dtype", std::string("bf16")});
  }
  return grid;
}

// Slots of all experts, as four experts have them for two sequences. Four
// of five are filled, since models have a quarter more slots than tokens.
PriceGrid expert_grid(const std::string& op) {
  constexpr double kFilled = 0.8;
  const std::vector<double> rows = {40, 320, 2560}, widths = {64, 256, 1024};
  PriceGrid grid{
      "experts' matrix products", 1, {op, "", DType::kF32, {"*", "k", "n"}, {rows, widths, widths}, {}, {}}};
  for (const double m : rows)
    for (const double k : widths)
      for (const double n : widths) {
        const TensorType x{DType::kF32, Shape{4, 2, whole(kFilled * m / 8), whole(k)}};
        const TensorType dy{DType::kF32, Shape{4, 2, whole(kFilled * m / 8), whole(n)}};
        const TensorType w{DType::kF32, Shape{4, whole(k), whole(n)}};
        grid.probes.push_back({op, {}, {x, reads_weight(op) ? w : dy}});
      }
  return grid;
}

PriceGrid attention_grid(const std::string& op, int64_t causal, const std::vector<double>& tokens) {
  std::vector<double> pairs;
  for (const double t : tokens) pairs.push_back(t * t);
  PriceGrid grid{"attention",
                 1,
                 {op,
                  format("causal={}", causal),
                  DType::kF32,
                  {"bkg", "ts", "d"},
                  {kHeads, pairs, kHeadSizes},
                  {},
                  {}}};
  for (const double heads : kHeads)
    for (const double t : tokens)
      for (const double d : kHeadSizes) {
        const TensorType q{DType::kF32, Shape{1, whole(t), whole(heads), whole(d)}};
        const TensorType lse{DType::kF32, Shape{1, whole(t), whole(heads)}};
        grid.probes.push_back(
            {op,
             {{"causal", causal}},
             find_op(op)->context.keys >= 0 ? std::vector{q, q, q} : std::vector{q, q, q, q, q, lse}});
      }
  return grid;
}

}  // namespace

std::vector<PriceGrid> price_grids(bool is_coarse, bool has_tensor_cores) {
  std::vector<PriceGrid> grids;
  for (const int64_t trans : {int64_t{0}, int64_t{1}})
    for (const char* op : {"matmul", "matmul_weight_grad"})
      grids.push_back(product_grid(DType::kF32, op, trans, !is_coarse));
  for (const char* op : {"matmul", "matmul_weight_grad"}) {
    grids.push_back(product_grid(DType::kF64, op, 0, false));
    for (const DType dtype : {DType::kBF16, DType::kF16})
      grids.push_back(product_grid(dtype, op, 0, has_tensor_cores && !is_coarse));
    if (has_tensor_cores) grids.push_back(tf32_grid(op, !is_coarse));
  }
  if (has_tensor_cores) {
    // A weight in another layout is transposed first.
    for (const int64_t trans : {int64_t{0}, int64_t{1}})
      grids.push_back(fp8_grid("scaled_matmul", trans, !is_coarse));
    grids.push_back(fp8_grid("scaled_matmul_weight_grad", 0, !is_coarse));
  }
  for (const char* op : {"expert_matmul", "expert_matmul_weight_grad"}) grids.push_back(expert_grid(op));
  for (const int64_t causal : {int64_t{1}, int64_t{0}})
    for (const char* op : {"attention", "attention_grad"})
      grids.push_back(attention_grid(op, causal, causal == 1 && !is_coarse ? kCausalTokens : kAllTokens));
  return grids;
}

}  // namespace tessera

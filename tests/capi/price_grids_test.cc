// Tables of `tessera calibrate`, by shape.
#include "engine/program/price_grids.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

using namespace tessera;

namespace {

const PriceGrid* find(const std::vector<PriceGrid>& grids, std::string_view op, std::string_view form,
                      DType dtype) {
  const auto found = std::ranges::find_if(grids, [&](const PriceGrid& grid) {
    return grid.table.op == op && grid.table.form == form && grid.table.dtype == dtype;
  });
  return found == grids.end() ? nullptr : &*found;
}

}  // namespace

TEST_CASE("with tensor cores 16 bits and TF32 are measured at as many shapes as f32, else TF32 is not") {
  const std::vector<PriceGrid> plain = price_grids(false, false), cores = price_grids(false, true);
  for (const char* op : {"matmul", "matmul_weight_grad"}) {
    const PriceGrid* exact = find(cores, op, "trans_w=0", DType::kF32);
    REQUIRE(exact != nullptr);
    CHECK(find(plain, op, "allow_tf32=1", DType::kF32) == nullptr);
    CHECK(find(plain, op, "", DType::kBF16)->probes.size() < exact->probes.size());
    for (const PriceGrid* grid : {find(cores, op, "allow_tf32=1", DType::kF32),
                                  find(cores, op, "", DType::kBF16), find(cores, op, "", DType::kF16)}) {
      REQUIRE(grid != nullptr);
      CHECK(grid->probes.size() == exact->probes.size());
      CHECK(grid->table.marks == exact->table.marks);
    }
    // The measured shapes are those of the table, and no others match.
    for (const PriceGrid& grid : cores)
      for (const Probe& probe : grid.probes) {
        const auto allows = std::ranges::find(probe.attrs, "allow_tf32", &Attr::name);
        REQUIRE((allows != probe.attrs.end()) == (grid.table.form == "allow_tf32=1"));
      }
  }
}

TEST_CASE("with tensor cores products of 8 bits have tables, of either layout of the weight") {
  const std::vector<PriceGrid> plain = price_grids(false, false), cores = price_grids(false, true);
  const PriceGrid* exact = find(cores, "matmul", "trans_w=0", DType::kF32);
  REQUIRE(exact != nullptr);
  struct Wanted {
    const char *op, *form;
    DType dtype;
  };
  for (const Wanted& wanted : {Wanted{"scaled_matmul", "trans_w=0", DType::kBF16},
                               Wanted{"scaled_matmul", "trans_w=1", DType::kBF16},
                               Wanted{"scaled_matmul_weight_grad", "", DType::kF32}}) {
    CAPTURE(wanted.op);
    CHECK(find(plain, wanted.op, wanted.form, wanted.dtype) == nullptr);
    const PriceGrid* grid = find(cores, wanted.op, wanted.form, wanted.dtype);
    REQUIRE(grid != nullptr);
    CHECK(grid->table.marks == exact->table.marks);
    for (const Probe& probe : grid->probes) CHECK(probe.inputs[0].dtype == DType::kE4M3);
  }
}

TEST_CASE("every shape that is measured is one that its op takes, at the marks of its table") {
  for (const PriceGrid& grid : price_grids(false, true)) {
    CAPTURE(grid.name);
    size_t points = 1;
    for (const std::vector<double>& marks : grid.table.marks) points *= marks.size();
    CHECK(grid.probes.size() == points);
    for (const Probe& probe : grid.probes) {
      Graph graph;
      std::vector<TensorId> inputs;
      for (size_t i = 0; i < probe.inputs.size(); ++i)
        inputs.push_back(
            graph.add_tensor("x" + std::to_string(i), probe.inputs[i], TensorKind::kInput).value());
      const auto made = graph.add_node(probe.op, inputs, probe.attrs);
      REQUIRE_MESSAGE(made.ok(), made.status().to_string());
      // By this type prices are looked up.
      CHECK(graph.type(made.value()[0]).dtype == grid.table.dtype);
    }
  }
}

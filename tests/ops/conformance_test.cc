// Every op of the registry, with every kernel of the CPU table, against its case file.
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <set>

#include "graph/base/text.h"
#include "tests/ops/checks.h"
#include "tests/ops/foreign_backend.h"

namespace tessera::conformance {
namespace {

const std::string kCases = TSR_SOURCE_DIR "/tests/ops/cases/";

// TESSERA_TEST_OP=matmul looks at one op while it is being written.
bool wanted(std::string_view op) {
  const char* only = std::getenv("TESSERA_TEST_OP");
  return only == nullptr || op == only;
}

TEST_CASE("every_op_passes_the_five_checks_of_its_case_file") {
  int checked = 0;
  for (const OpDef* op : all_ops()) {
    if (!wanted(op->name)) continue;
    ++checked;
    const auto file = read_case_file(kCases + std::string(op->name) + ".txt");
    if (!file.ok()) {
      FAIL_CHECK(std::string(file.status().message()));
      continue;
    }
    const std::vector<cpu::KernelEntry> kernels = kernels_of(op->name);
    for (const std::string& finding : check_all(*op, kernels, *file)) FAIL_CHECK(finding);
  }
  CHECK(checked > 0);
  // `./dev gpu` wants to see that it was the GPU's.
  if (!foreign_backend_name().empty())
    std::printf("%d ops checked on %s\n", checked, std::string(foreign_backend_name()).c_str());
}

TEST_CASE("every_case_file_belongs_to_an_op_and_has_a_size_one_an_odd_and_a_zero_extent") {
  for (const auto& entry : std::filesystem::directory_iterator(kCases)) {
    const std::string name = entry.path().stem().string();
    if (!wanted(name)) continue;
    CHECK_MESSAGE(find_op(name) != nullptr, name);
    const auto file = read_case_file(entry.path().string());
    if (!file.ok()) continue;  // reported above
    bool one = false, odd = false, zero = false, only_scalars = true;
    for (const Case& c : file->cases)
      for (const Operand& operand : c.operands)
        for (int64_t extent : operand.type.shape.dims()) {
          only_scalars = false;
          one |= extent == 1;
          odd |= extent > 1 && extent % 2 == 1;
          zero |= extent == 0;
        }
    CHECK_MESSAGE((only_scalars || (one && odd && zero)), name);
  }
}

TEST_CASE("the_tables_of_ops_and_kernels_are_sorted_and_every_op_has_a_reference_kernel_last") {
  for (size_t i = 1; i < all_ops().size(); ++i) CHECK(all_ops()[i - 1]->name < all_ops()[i]->name);
  for (const OpDef* op : all_ops()) {
    const auto kernels = kernels_of(op->name);
    CHECK_MESSAGE((!kernels.empty() && kernels.back().variant == "reference"), std::string(op->name));
  }
  for (const cpu::KernelEntry& entry : cpu::kernel_table())
    CHECK_MESSAGE(find_op(entry.op) != nullptr, std::string(entry.op));
}

}  // namespace
}  // namespace tessera::conformance

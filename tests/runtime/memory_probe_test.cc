// MemoryProbe on a backend that runs its work only when somebody waits, as devices may.
#include "runtime/memory_probe.h"

#include <doctest/doctest.h>

#include <cstring>
#include <functional>
#include <vector>

namespace tessera {
namespace {

std::vector<std::function<void()>>& issued() {
  static std::vector<std::function<void()>> all;
  return all;
}

tsr_backend_api late_api(uint32_t flags) {
  issued().clear();
  tsr_backend_api api{};
  api.struct_size = sizeof(api);
  api.flags = flags;
  api.fill = [](tsr_abi_stream*, void* out, int32_t byte, int64_t bytes) -> tsr_abi_error* {
    issued().push_back([=] { std::memset(out, byte, static_cast<size_t>(bytes)); });
    return nullptr;
  };
  api.copy = [](tsr_abi_stream*, const void* in, void* out, int64_t rows, int64_t row_bytes, int64_t,
                int64_t) -> tsr_abi_error* {
    issued().push_back([=] { std::memcpy(out, in, static_cast<size_t>(rows * row_bytes)); });
    return nullptr;
  };
  api.stream_synchronize = [](tsr_abi_stream*) -> tsr_abi_error* {
    for (const auto& work : issued()) work();
    issued().clear();
    return nullptr;
  };
  return api;
}

// A result of 64 bytes, and above it a workspace of 64 at 100.
RankProgram program_with_a_workspace() {
  RankProgram program;
  program.arena_bytes = 164;
  Slot result, workspace;
  result.bytes = workspace.bytes = 64;
  result.kind = SlotKind::kTransient;
  workspace.kind = SlotKind::kWorkspace;
  workspace.offset = 100;
  program.slots = {result, workspace};
  program.kernels.emplace_back().workspace_bytes = 64;
  KernelInst kernel;
  kernel.kernel = 0;
  kernel.workspace.slot = 1;
  program.entries.emplace_back().code.push_back(kernel);
  return program;
}

// The end of the highest bytes touched, as probed over two runs that write only the result.
int64_t highest_of_runs(uint32_t flags) {
  const tsr_backend_api api = late_api(flags);
  const RankProgram program = program_with_a_workspace();
  std::vector<std::byte> arena(static_cast<size_t>(program.arena_bytes));
  MemoryProbe probe(api, nullptr, Tier::kDevice, arena.data(), program);
  CHECK(probe.poison_all().ok());
  for (int run = 0; run < 2; ++run) {
    CHECK(probe.before_run(0).ok());
    CHECK(issued().empty());  // it waited for its fills, since other streams start here
    std::memset(arena.data(), 1, 64);
    CHECK(probe.after_run(0).ok());
  }
  return probe.highest();
}

TEST_CASE("a_workspace_counts_as_touched_where_a_library_may_have_it") {
  CHECK(highest_of_runs(0) == 164);
  CHECK(highest_of_runs(TSR_BACKEND_BLOCKING) == 64);
}

}  // namespace
}  // namespace tessera

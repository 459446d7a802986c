// KernelHost: some threads, and every instruction set of this CPU, for tests of fast kernels.
#pragma once

#include <doctest/doctest.h>

#include <atomic>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "hwy/targets.h"
#include "runtime/backend_abi.h"

namespace tessera::cpu {

inline tsr_host_api host_with_threads(int threads) {
  tsr_host_api host = {};
  host.struct_size = sizeof(host);
  host.host = reinterpret_cast<void*>(static_cast<intptr_t>(threads));
  host.parallel_for = [](void* self, int64_t tasks, void (*body)(void*, int64_t), void* context) {
    std::atomic<int64_t> next{0};
    const auto work = [&] {
      for (int64_t task = next++; task < tasks; task = next++) body(context, task);
    };
    std::vector<std::thread> helpers;
    for (intptr_t i = 1; i < reinterpret_cast<intptr_t>(self); ++i) helpers.emplace_back(work);
    work();
    for (std::thread& helper : helpers) helper.join();
  };
  host.take_scratch = [](void*, size_t bytes) { return std::aligned_alloc(64, (bytes + 63) / 64 * 64); };
  host.give_scratch = [](void*, void* memory) { std::free(memory); };
  return host;
}

// Targets have lower numbers the more they can; below SSE4 there are no vector kernels.
template <class Body>
void on_each_target(const Body& body) {
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    if (target > HWY_SSE4) continue;
    hwy::SetSupportedTargetsForTest(target);
    CAPTURE(std::string(hwy::TargetName(target)));
    body();
  }
  hwy::SetSupportedTargetsForTest(0);
}

}  // namespace tessera::cpu

// The backend that tests run on: the CPU, or what TESSERA_TEST_BACKEND names, through its plugin.
// TESSERA_PLUGIN_PATH is the folder of the plugin; without it, the build's.
#pragma once

#include <algorithm>
#include <climits>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "runtime/backend_registry.h"

namespace tessera::test {

inline std::string test_backend() {
  const char* name = std::getenv("TESSERA_TEST_BACKEND");
  return name != nullptr ? name : "cpu";
}

inline std::string plugin_folder() {
  const char* folder = std::getenv("TESSERA_PLUGIN_PATH");
  if (folder != nullptr) return folder;
  // A build keeps its tests in tests/ and its libraries in capi/.
  std::error_code ignored;
  return (std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path().parent_path() / "capi")
      .string();
}

// The device of a rank: its own where there are enough, else ranks share them in turn.
inline int32_t ordinal_of(const tsr_backend_api& api, int32_t rank) {
  return rank % std::max<int32_t>(1, api.device_count());
}

// "cpu:4", or "cuda:0,0,0,0" where four ranks share one GPU.
inline Result<std::string> devices_for(BackendRegistry& registry, int32_t ranks) {
  TSR_ASSIGN_OR_RETURN(const tsr_backend_api* const api, registry.find(test_backend()));
  std::string text = test_backend() + ":";
  if (api->device_count() == INT32_MAX) return text + std::to_string(ranks);
  for (int32_t rank = 0; rank < ranks; ++rank)
    text += (rank > 0 ? "," : "") + std::to_string(ordinal_of(*api, rank));
  return text;
}

}  // namespace tessera::test

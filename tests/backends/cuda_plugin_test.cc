// The CUDA plugin where it was built: on a machine without a GPU it loads and says why it cannot be used.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include "runtime/host_services.h"
#include "tests/skip.h"
#include "tests/test_backend.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

namespace tessera {
namespace {

RegistryOptions options() {
  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.plugin_path = test::plugin_folder();
  options.threads = 1;
  return options;
}

bool is_built() {
  struct stat attributes {};
  return stat((test::plugin_folder() + "/libtessera_cuda.so").c_str(), &attributes) == 0;
}

BackendInfo cuda_of(BackendRegistry& registry) {
  for (BackendInfo& backend : registry.list())
    if (backend.name == "cuda") return backend;
  return {};
}

TEST_CASE("the_cuda_plugin_has_devices_or_one_line_that_says_why_not") {
  BackendRegistry registry(options());
  const BackendInfo cuda = cuda_of(registry);
  CHECK(cuda.name == "cuda");
  INFO(cuda.reason);
  if (cuda.available) {
    CHECK(cuda.device_count > 0);
    CHECK(cuda.devices.size() == static_cast<size_t>(cuda.device_count));
    return;
  }
  CHECK(!cuda.reason.empty());
  CHECK(cuda.reason.find('\n') == std::string::npos);
  // A fault of the machine, not of the plugin: it loads everywhere.
  if (is_built())
    CHECK(cuda.reason.find("NVIDIA driver") != std::string::npos);
  else
    CHECK(cuda.reason.find("not found") != std::string::npos);
  CHECK(registry.find("cpu").ok());
}

TEST_CASE("memory_of_the_cuda_backend_is_cleared_copied_and_filled" * doctest::test_suite("gpu")) {
  BackendRegistry registry(options());
  const auto found = registry.find("cuda");
  if (!found.ok()) {
    test::skip("no CUDA device, real or emulated");
    return;
  }
  const tsr_backend_api& api = **found;
  tsr_abi_device* device = nullptr;
  tsr_abi_stream* stream = nullptr;
  REQUIRE(take_error(api.device_open(&registry.host(), 0, &device)).ok());
  REQUIRE(take_error(api.stream_create(device, &stream)).ok());
  for (const int32_t tier : {0, 1})
    for (const uint32_t flags : {0u, static_cast<uint32_t>(TSR_ALLOC_GUARDED)}) {
      constexpr int64_t kBytes = 1000;
      void* memory = nullptr;
      REQUIRE(take_error(api.memory_alloc(device, tier, kBytes, flags, &memory)).ok());
      std::vector<unsigned char> back(kBytes, 1), wanted(kBytes, 0);
      const auto read = [&] {
        CHECK(take_error(api.copy(stream, memory, back.data(), 1, kBytes, kBytes, kBytes)).ok());
        CHECK(take_error(api.stream_synchronize(stream)).ok());
        return back;
      };
      CHECK(read() == wanted);
      CHECK(take_error(api.fill(stream, memory, 7, kBytes)).ok());
      std::fill(wanted.begin(), wanted.end(), static_cast<unsigned char>(7));
      CHECK(read() == wanted);
      // Rows of 10 bytes out of rows of 20, into rows of 25; zero bytes into rows of 50.
      std::vector<unsigned char> rows(200);
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<unsigned char>(i);
      CHECK(take_error(api.copy(stream, rows.data(), memory, 10, 10, 20, 25)).ok());
      for (size_t row = 0; row < 10; ++row)
        std::copy_n(rows.begin() + row * 20, 10, wanted.begin() + row * 25);
      CHECK(read() == wanted);
      CHECK(take_error(api.copy(stream, nullptr, memory, 20, 5, 0, 50)).ok());
      for (size_t row = 0; row < 20; ++row)
        std::fill_n(wanted.begin() + row * 50, 5, static_cast<unsigned char>(0));
      CHECK(read() == wanted);
      api.memory_free(device, tier, memory, kBytes);
    }
  api.stream_destroy(stream);
  api.device_close(device);
}

TEST_CASE("events_of_the_cuda_backend_tell_times_and_each_replay_of_a_graph_records_them_anew" *
          doctest::test_suite("gpu")) {
  BackendRegistry registry(options());
  const auto found = registry.find("cuda");
  if (!found.ok()) {
    test::skip("no CUDA device, real or emulated");
    return;
  }
  const tsr_backend_api& api = **found;
  tsr_abi_device* device = nullptr;
  tsr_abi_stream* stream = nullptr;
  REQUIRE(take_error(api.device_open(&registry.host(), 0, &device)).ok());
  REQUIRE(take_error(api.stream_create(device, &stream)).ok());
  constexpr int64_t kBytes = int64_t{64} << 20;
  void* memory = nullptr;
  REQUIRE(take_error(api.memory_alloc(device, 0, kBytes, 0, &memory)).ok());
  tsr_abi_event *first = nullptr, *begin = nullptr, *end = nullptr;
  for (tsr_abi_event** event : {&first, &begin, &end})
    REQUIRE(take_error(api.timed_event_create(device, event)).ok());
  const auto elapsed = [&](tsr_abi_event* from, tsr_abi_event* to) -> Result<int64_t> {
    int64_t ns = -1;
    TSR_RETURN_IF_ERROR(take_error(api.event_elapsed(from, to, &ns)));
    return ns;
  };

  REQUIRE(take_error(api.event_record(first, stream)).ok());
  REQUIRE(take_error(api.capture_begin(stream)).ok());
  CHECK(take_error(api.event_record(begin, stream)).ok());
  CHECK(take_error(api.fill(stream, memory, 7, kBytes)).ok());
  CHECK(take_error(api.event_record(end, stream)).ok());
  void* graph = nullptr;
  REQUIRE(take_error(api.capture_end(stream, &graph)).ok());
  CHECK(!elapsed(begin, end).ok());  // nothing was recorded yet
  int64_t since_first_ns = 0;
  for (int run = 0; run < 2; ++run) {
    REQUIRE(take_error(api.replay(stream, graph)).ok());
    REQUIRE(take_error(api.stream_synchronize(stream)).ok());
    const Result<int64_t> fill_ns = elapsed(begin, end), at_ns = elapsed(first, begin);
    REQUIRE(fill_ns.ok());
    REQUIRE(at_ns.ok());
    CHECK(*fill_ns >= 0);
    CHECK(*fill_ns < 1'000'000'000);
    CHECK(*at_ns >= since_first_ns);
    since_first_ns = *at_ns;
  }

  tsr_abi_memory_info info{};
  info.struct_size = sizeof info;
  REQUIRE(take_error(api.memory_info(device, &info)).ok());
  CHECK(info.used_bytes >= kBytes);
  CHECK(info.used_bytes <= info.total_bytes);

  api.graph_destroy(graph);
  for (tsr_abi_event* event : {first, begin, end}) api.event_destroy(event);
  api.memory_free(device, 0, memory, kBytes);
  api.stream_destroy(stream);
  api.device_close(device);
}

}  // namespace
}  // namespace tessera

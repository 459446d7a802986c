#include "runtime/device_set.h"

#include <doctest/doctest.h>

#include "graph/base/text.h"
#include "test_devices.h"

namespace tessera {
namespace {

using test::cpu_options;

TEST_CASE("virtual_devices_are_opened_by_count_and_share_cores_and_memory") {
  BackendRegistry registry(cpu_options(3));
  auto one = DeviceSet::open(registry, "cpu").value();
  auto four = DeviceSet::open(registry, " cpu:4 ").value();
  CHECK(one->size() == 1);
  CHECK(four->size() == 4);
  CHECK(four->text() == "cpu:4");
  CHECK(four->device_name(2) == "cpu:2");
  const Cluster cluster = four->cluster();
  CHECK(cluster.devices == std::vector<int32_t>{0, 0, 0, 0});
  CHECK(cluster.shared_cores == 3);
  CHECK(cluster.kinds[0].memory_bytes == one->cluster().kinds[0].memory_bytes / 4);
  CHECK(cluster.kinds[0].matmul_flops_per_s > 0);
  CHECK(cluster.link.bytes_per_s > 0);
}

TEST_CASE("shares_of_devices_are_neighbours_and_divide_the_memory_of_all") {
  BackendRegistry registry(cpu_options());
  const auto all = DeviceSet::open(registry, "cpu:6").value();
  const auto second = DeviceSet::open(registry, "cpu:6", {.index = 1, .count = 3}).value();
  CHECK(second->size() == 2);
  CHECK(second->device_name(0) == "cpu:2");
  CHECK(second->device_name(1) == "cpu:3");
  CHECK(second->text() == "cpu:2");  // as many
  CHECK(second->cluster().kinds[0].memory_bytes == all->cluster().kinds[0].memory_bytes);
  const auto none = DeviceSet::open(registry, "cpu:6", {.index = 0, .count = 4});
  CHECK(none.status().code() == StatusCode::kInvalidArgument);
  CHECK(none.status().message().find("wanted a multiple of 4 devices") != std::string_view::npos);
}

TEST_CASE("device_texts_that_mean_nothing_are_refused_with_what_was_wanted") {
  BackendRegistry registry(cpu_options());
  for (const char* text : {"", "cpu:", "cpu:0", "cpu:-1", "cpu:two", "cpu:1,2", "cpu:99999", ":4"}) {
    const auto set = DeviceSet::open(registry, text);
    CHECK_MESSAGE(set.status().code() == StatusCode::kInvalidArgument, text);
    CHECK(set.status().message().find("wanted a backend and a count or ordinals") != std::string_view::npos);
  }
  CHECK(DeviceSet::open(registry, "../evil").status().code() == StatusCode::kInvalidArgument);
}

TEST_CASE("an_absent_plugin_is_information") {
  RegistryOptions options = cpu_options();
  options.plugin_path = "/nonexistent";
  BackendRegistry registry(options);
  CHECK(DeviceSet::open(registry, "cuda").status().to_string() ==
        "not_found: no backend 'cuda': libtessera_cuda.so not found in /nonexistent; here: cpu, as in 'cpu:2'");
  const auto backends = registry.list();
  REQUIRE(backends.size() == 2);
  CHECK(backends[0].name == "cpu");
  CHECK(backends[0].available);
  CHECK(backends[0].devices.size() == 1);
  CHECK(backends[1].name == "cuda");
  CHECK_FALSE(backends[1].available);
  CHECK(backends[1].reason == "libtessera_cuda.so not found in /nonexistent");
}

// Tables that a host must refuse.
const tsr_backend_api* wrong_version(const tsr_host_api* host) {
  static tsr_backend_api table;
  table = *tsr_cpu_backend_entry(host);
  table.name = "old";
  table.abi_version = 7;
  return &table;
}
const tsr_backend_api* short_table(const tsr_host_api* host) {
  static tsr_backend_api table;
  table = *tsr_cpu_backend_entry(host);
  table.name = "short";
  table.struct_size = 64;
  return &table;
}
const tsr_backend_api* unavailable(const tsr_host_api* host) {
  static tsr_backend_api table;
  table = *tsr_cpu_backend_entry(host);
  table.name = "absent";
  table.unavailable_reason = []() -> const char* { return "driver too old"; };
  return &table;
}

TEST_CASE("a_backend_of_another_abi_is_refused_with_the_reason") {
  RegistryOptions options;
  options.built_in = {wrong_version, short_table, unavailable};
  BackendRegistry registry(options);
  CHECK(registry.find("old").status().message().find("ABI version 7, 1 is required") !=
        std::string_view::npos);
  CHECK(registry.find("short").status().message().find("table of 64 bytes") != std::string_view::npos);
  CHECK(registry.find("absent").status().message() == "backend 'absent': driver too old");
}

TEST_CASE("the_catalog_answers_refuses_and_remembers") {
  BackendRegistry registry(cpu_options());
  auto devices = DeviceSet::open(registry, "cpu:2").value();
  const OpDef* add = find_op("add");
  REQUIRE(add != nullptr);
  const std::vector<TensorType> in(2, {DType::kF32, {128, 64}});
  const std::vector<TensorType> out(1, in[0]);
  const OpView view{{}, in, out, {}};
  const auto first = devices->catalog().query(*add, view), second = devices->catalog().query(*add, view);
  REQUIRE(first.ok());
  CHECK(first->variant == second->variant);
  CHECK(first->seconds > 0);
  CHECK(devices->catalog().fingerprint() ==
        DeviceSet::open(registry, "cpu:3").value()->catalog().fingerprint());
  OpDef unknown = *add;
  unknown.name = "no_such_op";
  for (int i = 0; i < 2; ++i)
    CHECK(devices->catalog().query(unknown, view).status().message() ==
          "the cpu backend has no kernel for 'no_such_op'");
}

}  // namespace
}  // namespace tessera

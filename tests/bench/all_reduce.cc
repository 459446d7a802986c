// all_reduce PLUGINS: under mpirun, sums of f32 over all processes by a spanning group and by a plain loop of MPI_Allreduce, in turn: bytes
// of the buffer a second, medians, and their ratio by size. Ours adds in the order of the ranks, MPI's in its own.
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>
#include <vector>

#include "runtime/backend_collective.h"
#include "runtime/backend_registry.h"
#include "runtime/host_services.h"
#include "runtime/spanning_group.h"
#include "runtime/transport_plugin.h"

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host);

using namespace tessera;

namespace {

double seconds_of(auto&& body) {
  const auto begun = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
}

double median(std::vector<double> values) {
  std::ranges::nth_element(values, values.begin() + std::ssize(values) / 2);
  return values[values.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  RegistryOptions options;
  options.built_in = {tsr_cpu_backend_entry};
  options.threads = 1;
  BackendRegistry registry(options);
  const tsr_transport_api* api = load_transport(argc > 1 ? argv[1] : "", "mpi", registry.host()).value();
  const auto transport = Transport::open(*api, registry.host(), {}).value();
  const auto channel = Channel::open(transport).value();
  const tsr_backend_api& cpu = *registry.find("cpu").value();
  tsr_abi_device* device = nullptr;
  if (!take_error(cpu.device_open(&registry.host(), 0, &device)).ok()) return 1;
  std::vector<int32_t> homes(static_cast<size_t>(transport->processes()));
  std::iota(homes.begin(), homes.end(), 0);
  tsr_abi_comm_use use{};
  use.struct_size = sizeof use;
  {
    const auto ends = join_spanning_group(*channel, cpu, registry.host(), {homes, {&device, 1}}, use).value();
    for (int64_t bytes = int64_t{1} << 10; bytes <= int64_t{64} << 20; bytes *= 4) {
      const int64_t elements = bytes / 4;
      std::vector<float> data(static_cast<size_t>(elements), 1);
      tsr_abi_collective what{};
      what.struct_size = sizeof what;
      what.member_count = transport->processes();
      what.outer = what.middle = what.inner = 1;
      what.elements = elements;
      std::vector<double> ours, theirs;
      for (int round = 0; round < 25; ++round) {
        MPI_Barrier(MPI_COMM_WORLD);
        ours.push_back(seconds_of([&] { (void)ends[0]->collective(nullptr, what, data.data(), data.data()); }));
        MPI_Barrier(MPI_COMM_WORLD);
        theirs.push_back(seconds_of([&] { MPI_Allreduce(MPI_IN_PLACE, data.data(), static_cast<int>(elements), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD); }));
      }
      const double rate = static_cast<double>(bytes) / median(ours) / 1e9, plain = static_cast<double>(bytes) / median(theirs) / 1e9;
      if (transport->process() == 0)
        std::printf("%9lld bytes: %.2f GB/s, MPI_Allreduce %.2f GB/s, ratio %.2f\n", static_cast<long long>(bytes), rate, plain, rate / plain);
    }
  }
  cpu.device_close(device);
  return 0;
}

// Collectives between processes give the bits of one process, whichever members live where.
#include "runtime/spanning_group.h"

#include <doctest/doctest.h>

#include <atomic>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "graph/base/dtype.h"
#include "runtime/backend_collective.h"
#include "test_devices.h"
#include "tests/thread_world.h"

namespace tessera {
namespace {

using test::ThreadWorld;

// A collective with its extents, and the buffers of all members.
struct Drawn {
  tsr_abi_collective what{};
  std::vector<int64_t> extents, extents2;
  std::vector<std::vector<std::byte>> in;  // by position
  std::vector<int64_t> out_bytes;
  bool in_place = false;
};

int64_t outputs(const tsr_abi_collective& what, int32_t position) {
  switch (what.kind) {
    case kReduceScatter: return what.outer * what.extents[position] * what.inner;
    case kAllToAll:
      return what.outer * sum_of_extents(what.extents, what.member_count) * what.middle * what.extents2[position] * what.inner;
    default: return what.elements;
  }
}

Drawn draw(std::mt19937& random, int32_t members) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32, DType::kI64};
  const auto from = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  Drawn drawn;
  tsr_abi_collective& what = drawn.what;
  what.struct_size = sizeof what;
  what.kind = static_cast<int32_t>(from(kAllReduce, kBroadcast));
  const DType dtype = kTypes[from(0, 5)];
  what.dtype = static_cast<int32_t>(dtype);
  what.reduce = static_cast<int32_t>(from(0, 1));
  what.member_count = members;
  what.in_split_first = static_cast<int32_t>(from(0, 1));
  what.root = static_cast<int32_t>(from(0, members - 1));
  what.outer = what.middle = what.inner = 1;
  if (what.kind == kAllReduce || what.kind == kBroadcast) {
    what.elements = from(0, 3) == 0 ? from(0, 40) : from(0, 9) == 0 ? from(1 << 20, (1 << 20) + 99999) : from(0, 6000);
  } else {
    what.outer = from(1, 3), what.inner = from(1, 5);
    for (int32_t i = 0; i < members; ++i) drawn.extents.push_back(from(0, 6)), drawn.extents2.push_back(from(0, 6));
    what.elements = what.outer * sum_of_extents(drawn.extents.data(), members) * what.inner;
    if (what.kind == kAllToAll) {
      what.middle = from(1, 3);
      what.elements *= what.middle * sum_of_extents(drawn.extents2.data(), members);
    }
  }
  what.extents = drawn.extents.data(), what.extents2 = drawn.extents2.data();
  drawn.in_place = what.kind == kAllReduce && from(0, 1) == 1;
  for (int32_t i = 0; i < members; ++i) {
    std::vector<std::byte>& in = drawn.in.emplace_back(static_cast<size_t>(dtype_bytes(dtype, input_elements(what, i))));
    // Small values of any type: sums differ by their order, and none overflows.
    for (size_t at = 0; at + static_cast<size_t>(info(dtype).block_bytes) <= in.size(); at += static_cast<size_t>(info(dtype).block_bytes)) {
      const double value = std::uniform_real_distribution<double>(-3, 3)(random);
      const auto put = [&](auto typed) { std::memcpy(&in[at], &typed, sizeof typed); };
      if (dtype == DType::kF64) put(value);
      else if (dtype == DType::kF32) put(static_cast<float>(value));
      else if (dtype == DType::kI64) put(static_cast<int64_t>(random()));
      else if (dtype == DType::kI32) put(static_cast<int32_t>(random()));
      else put(static_cast<uint16_t>(dtype == DType::kBF16 ? 0x3f00 + random() % 0x100 : 0x3800 + random() % 0x800));
    }
    drawn.out_bytes.push_back(dtype_bytes(dtype, outputs(what, i)));
  }
  return drawn;
}

using Outputs = std::vector<std::vector<std::byte>>;  // by position

// Calls as member `position`, with buffers of its own.
template <class Call>
Status call_as(const Drawn& drawn, int32_t position, Outputs& out, const Call& call) {
  const auto at = static_cast<size_t>(position);
  std::vector<std::byte> in = drawn.in[at];
  std::vector<std::byte>& mine = out[at];
  mine.assign(static_cast<size_t>(drawn.out_bytes[at]), std::byte{0x5a});
  const bool is_in_place = drawn.in_place;
  if (is_in_place) mine = in;
  const void* from = is_in_place ? mine.data() : in.data();
  if (drawn.what.kind == kBroadcast && position != drawn.what.root) from = nullptr;
  return call(from, mine.data());
}

Outputs in_one_process(const std::vector<Drawn>& all, int32_t members, std::vector<Outputs>& results,
                       std::vector<tsr_abi_comm_counters>& counters) {
  test::Ring ring(members, 2);
  results.assign(all.size(), Outputs(static_cast<size_t>(members)));
  const auto statuses = ring.on_all([&](int32_t member) -> Status {
    for (size_t i = 0; i < all.size(); ++i)
      TSR_RETURN_IF_ERROR(call_as(all[i], member, results[i], [&](const void* in, void* out) {
        return take_error(ring.api().comm_collective(ring.comm(member), ring.stream(member), &all[i].what, in, out));
      }));
    return {};
  });
  for (const Status& status : statuses) REQUIRE_MESSAGE(status.ok(), status.to_string());
  for (int32_t member = 0; member < members; ++member) {
    tsr_abi_comm_counters& found = counters.emplace_back();
    found.struct_size = sizeof found;
    ring.api().comm_counters(ring.comm(member), &found);
  }
  return {};
}

// The members' processes are drawn, each process with at least one.
void in_several_processes(const std::vector<Drawn>& all, std::span<const int32_t> homes, int32_t processes,
                          std::vector<Outputs>& results, std::vector<tsr_abi_comm_counters>& counters,
                          std::vector<Status>& statuses) {
  const auto members = static_cast<int32_t>(homes.size());
  results.assign(all.size(), Outputs(homes.size()));
  counters.resize(homes.size()), statuses.resize(homes.size());
  BackendRegistry registry(test::cpu_options(2));
  const tsr_backend_api& api = *registry.find("cpu").value();
  ThreadWorld::run(processes, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    const auto channel = Channel::open(transport).value();
    std::vector<int32_t> here;
    for (int32_t position = 0; position < members; ++position)
      if (homes[static_cast<size_t>(position)] == transport->process()) here.push_back(position);
    std::vector<tsr_abi_device*> devices(here.size());
    std::vector<tsr_abi_stream*> streams(here.size());
    for (size_t i = 0; i < here.size(); ++i) {
      CHECK(take_error(api.device_open(&registry.host(), here[i], &devices[i])).ok());
      CHECK(take_error(api.stream_create(devices[i], &streams[i])).ok());
    }
    tsr_abi_comm_use use{};
    use.struct_size = sizeof use;
    {
      auto ends = join_spanning_group(*channel, api, registry.host(), {homes, devices}, use).value();
      std::vector<std::thread> threads;
      for (size_t i = 0; i < here.size(); ++i)
        threads.emplace_back([&, i] {
          const auto at = static_cast<size_t>(here[i]);
          (void)ends[i]->perturb(at + 1);
          for (size_t c = 0; c < all.size() && statuses[at].ok(); ++c)
            statuses[at] = call_as(all[c], here[i], results[c],
                                   [&](const void* in, void* out) { return ends[i]->collective(streams[i], all[c].what, in, out); });
          counters[at] = ends[i]->counters();
        });
      for (std::thread& thread : threads) thread.join();
    }
    for (tsr_abi_stream* stream : streams) api.stream_destroy(stream);
    for (tsr_abi_device* device : devices) api.device_close(device);
  });
}

TEST_CASE("collectives between processes have the bits and counts of one process") {
  std::mt19937 random(11);
  for (int round = 0; round < 40; ++round) {
    const int32_t members = std::uniform_int_distribution<int32_t>(2, 7)(random);
    const int32_t processes = std::uniform_int_distribution<int32_t>(2, std::min(members, 4))(random);
    std::vector<int32_t> homes;
    for (int32_t i = 0; i < members; ++i) homes.push_back(i < processes ? i : std::uniform_int_distribution<int32_t>(0, processes - 1)(random));
    std::ranges::shuffle(homes, random);
    std::vector<Drawn> all;
    for (int i = 0; i < 12; ++i) all.push_back(draw(random, members));
    for (Drawn& drawn : all) drawn.what.extents = drawn.extents.data(), drawn.what.extents2 = drawn.extents2.data();
    std::vector<Outputs> wanted, found;
    std::vector<tsr_abi_comm_counters> wanted_counts, counts;
    std::vector<Status> statuses;
    in_one_process(all, members, wanted, wanted_counts);
    in_several_processes(all, homes, processes, found, counts, statuses);
    for (const Status& status : statuses) REQUIRE_MESSAGE(status.ok(), status.to_string());
    for (size_t i = 0; i < all.size(); ++i)
      for (size_t position = 0; position < homes.size(); ++position) {
        CAPTURE(all[i].what.kind);
        CAPTURE(all[i].what.dtype);
        CAPTURE(position);
        CHECK(found[i][position] == wanted[i][position]);
      }
    for (size_t position = 0; position < homes.size(); ++position)
      for (int kind = 0; kind <= kBroadcast; ++kind) {
        CHECK(counts[position].calls[kind] == wanted_counts[position].calls[kind]);
        CHECK(counts[position].bytes[kind] == wanted_counts[position].bytes[kind]);
      }
  }
}

TEST_CASE("an abort by one process ends the waits of all") {
  BackendRegistry registry(test::cpu_options(2));
  const tsr_backend_api& api = *registry.find("cpu").value();
  std::atomic<int> told{0};
  ThreadWorld::run(3, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    const auto channel = Channel::open(transport).value();
    tsr_abi_device* device = nullptr;
    CHECK(take_error(api.device_open(&registry.host(), transport->process(), &device)).ok());
    tsr_abi_comm_use use{};
    use.struct_size = sizeof use;
    const int32_t homes[] = {0, 1, 2};
    {
      const auto ends = join_spanning_group(*channel, api, registry.host(), {homes, {&device, 1}}, use).value();
      if (transport->process() == 1) {
        channel->abort(Status(StatusCode::kIo, "the disk is full"));
      } else {
        float value = 1;
        tsr_abi_collective what{};
        what.struct_size = sizeof what;
        what.member_count = 3;
        what.elements = what.outer = what.middle = what.inner = 1;
        CHECK(ends[0]->collective(nullptr, what, &value, &value).code() == StatusCode::kAborted);
      }
      CHECK(channel->failure().code() == StatusCode::kIo);
      told += channel->failure().message().find("the disk is full") != std::string_view::npos ? 1 : 0;
    }
    api.device_close(device);
  });
  CHECK(told == 3);
}

}  // namespace
}  // namespace tessera

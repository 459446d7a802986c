#include "runtime/backends/cpu/cpu_backend.h"

#include <algorithm>
#include <climits>
#include <cstdio>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "runtime/backend_table.h"
#include "runtime/backends/cpu/arena.h"
#include "runtime/backends/cpu/communicator.h"
#include "runtime/backends/cpu/cpu_kernel.h"
#include "runtime/backends/cpu/kernel_group.h"
#include "runtime/backends/cpu/kernels/quantized_rows.h"
#include "runtime/backends/cpu/rates.h"
#include "runtime/backends/cpu/widened_kernel.h"

using tessera::Result;
using tessera::Status;
using tessera::StatusCode;
using namespace tessera::cpu;  // NOLINT: this file is the backend's table

struct tsr_abi_device {
  const tsr_host_api* host;
  int32_t ordinal;
};
struct tsr_abi_stream {
  tsr_abi_device* device;
};
struct tsr_abi_event {
  tsr_abi_device* device;
};
struct tsr_abi_kernel {
  std::unique_ptr<Kernel> kernel;
  bool runs_alone = false;  // on the thread that launches
  std::vector<int64_t> input_bytes = {}, output_bytes = {};
  int64_t workspace_bytes = 0;
};
struct tsr_abi_comm {
  std::unique_ptr<Communicator> end;
};

namespace {

tessera::BackendErrors g_errors;
template <class Body>
tsr_abi_error* guarded(Body&& body) {
  return g_errors.guarded(body);
}

// ---- device, memory, stream

tsr_abi_error* device_info(int32_t, tsr_abi_device_info* out) {
  return guarded([&] {
    const Rates rates = machine_rates();
    std::snprintf(out->name, sizeof(out->name), "cpu (%d cores, %s)", rates.cores, rates.isa);
    out->memory_bytes = rates.memory_bytes;
    out->matmul_flops_per_s = rates.matmul_flops_per_s;
    out->memory_bytes_per_s = rates.memory_bytes_per_s;
    out->launch_s = rates.launch_s;
    out->link_bytes_per_s = rates.link_bytes_per_s;
    out->link_latency_s = rates.link_latency_s;
    out->shared_cores = rates.cores;
    return Status();
  });
}

tsr_abi_error* device_open(const tsr_host_api* host, int32_t ordinal, tsr_abi_device** out) {
  return guarded([&] {
    *out = new tsr_abi_device{host, ordinal};
    return Status();
  });
}
void device_close(tsr_abi_device* device) { delete device; }

// Device and host tier are the same memory here; they stay apart because their arenas are.
tsr_abi_error* memory_alloc(tsr_abi_device* device, int32_t tier, int64_t bytes, uint32_t flags, void** out) {
  return guarded([&]() -> Status {
    if (tier != 0 && tier != 1)
      return Status(StatusCode::kUnsupported,
                    tessera::format("memory tier {}: the cpu backend has 0 and 1", tier));
    TSR_ASSIGN_OR_RETURN(*out, arena_alloc(*device->host, bytes, (flags & TSR_ALLOC_GUARDED) != 0));
    return {};
  });
}
void memory_free(tsr_abi_device* device, int32_t, void* memory, int64_t bytes) {
  arena_free(*device->host, memory, bytes);
}

tsr_abi_error* stream_create(tsr_abi_device* device, tsr_abi_stream** out) {
  return guarded([&] {
    *out = new tsr_abi_stream{device};
    return Status();
  });
}
void stream_destroy(tsr_abi_stream* stream) { delete stream; }
tsr_abi_error* stream_synchronize(tsr_abi_stream*) { return nullptr; }

// Issued work is already done, so an event is always reached.
tsr_abi_error* event_create(tsr_abi_device* device, tsr_abi_event** out) {
  return guarded([&] {
    *out = new tsr_abi_event{device};
    return Status();
  });
}
void event_destroy(tsr_abi_event* event) { delete event; }
tsr_abi_error* event_record(tsr_abi_event*, tsr_abi_stream*) { return nullptr; }
tsr_abi_error* stream_wait(tsr_abi_stream*, tsr_abi_event*) { return nullptr; }

void copy_row(const char* in, char* out, int64_t bytes) {
  if (in != nullptr)
    std::memmove(out, in, static_cast<size_t>(bytes));
  else
    std::memset(out, 0, static_cast<size_t>(bytes));
}

// Large copies go to the pool in pieces of whole rows, or of 1 MiB when there is one row.
tsr_abi_error* copy(tsr_abi_stream* stream, const void* in, void* out, int64_t rows, int64_t row_bytes,
                    int64_t in_stride_bytes, int64_t out_stride_bytes) {
  constexpr int64_t kPieceBytes = int64_t{1} << 20;
  if (rows <= 0 || row_bytes <= 0) return nullptr;
  return guarded([&] {
    if (rows > 1 && row_bytes == out_stride_bytes && (in == nullptr || row_bytes == in_stride_bytes)) {
      row_bytes *= rows;
      rows = 1;
    }
    const auto* from = static_cast<const char*>(in);
    auto* to = static_cast<char*>(out);
    const Pool pool(*stream->device->host);
    if (rows == 1) {
      pool.parallel_ranges(row_bytes, kPieceBytes, [&](int64_t begin, int64_t end) {
        copy_row(from != nullptr ? from + begin : nullptr, to + begin, end - begin);
      });
    } else {
      pool.parallel_ranges(rows, std::max<int64_t>(1, kPieceBytes / row_bytes),
                           [&](int64_t begin, int64_t end) {
                             for (int64_t row = begin; row < end; ++row)
                               copy_row(from != nullptr ? from + row * in_stride_bytes : nullptr,
                                        to + row * out_stride_bytes, row_bytes);
                           });
    }
    return Status();
  });
}

tsr_abi_error* fill(tsr_abi_stream* stream, void* out, int32_t byte, int64_t bytes) {
  return guarded([&] {
    Pool(*stream->device->host).parallel_ranges(bytes, int64_t{4} << 20, [&](int64_t begin, int64_t end) {
      std::memset(static_cast<char*>(out) + begin, byte, static_cast<size_t>(end - begin));
    });
    return Status();
  });
}

// ---- kernels

// The machine's rates, fixed for the life of a process.
const Rates& fixed_rates() {
  static const Rates rates = machine_rates();
  return rates;
}

// Whether a kernel, in so far as it can be estimated, has little more work than handing a part of it to another
// thread costs: that is about a microsecond. Its tasks, and so its bits, are the same.
bool is_too_small_to_share(const PreparedKernel& prepared) {
  constexpr double kSeconds = 5e-6;
  const Rates& rates = fixed_rates();
  const double core_flops_per_s = rates.matmul_flops_per_s / rates.cores;
  return prepared.flops < kSeconds * prepared.efficiency * core_flops_per_s &&
         prepared.bytes < kSeconds * rates.core_memory_bytes_per_s;
}

// A row of the table, or where none takes the types an f32 kernel on widened operands.
auto choose(const tsr_abi_kernel_desc& desc) {
  auto choice = tessera::choose_kernel("cpu", kernel_table(), desc);
  const bool wants_widened = desc.variant == nullptr || std::string_view(desc.variant).starts_with(kWidened);
  if (choice.ok() || !wants_widened || choice.status().code() != StatusCode::kUnsupported) return choice;
  auto widened = prepare_widened(tessera::KernelSpec(desc));
  if (!widened.ok()) return choice;
  return decltype(choice)(tessera::PreparedChoice<PreparedKernel>{
      desc.variant != nullptr ? std::string_view(desc.variant) : kWidened, std::move(widened).value()});
}

tsr_abi_error* kernel_query(int32_t, const tsr_abi_kernel_desc* desc, tsr_abi_kernel_info* out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(const auto choice, choose(*desc));
    return tessera::answer_query(choice, fixed_rates(), *out);
  });
}

std::vector<int64_t> bytes_of(std::span<const tsr_abi_tensor> operands) {
  std::vector<int64_t> bytes;
  for (const tsr_abi_tensor& operand : operands)
    bytes.push_back(tessera::dtype_bytes(static_cast<tessera::DType>(operand.dtype),
                                         tessera::KernelSpec::elements(operand)));
  return bytes;
}

tsr_abi_error* kernel_prepare(tsr_abi_device*, const tsr_abi_kernel_desc* desc, tsr_abi_kernel** out) {
  return guarded([&]() -> Status {
    TSR_ASSIGN_OR_RETURN(auto choice, choose(*desc));
    const bool runs_alone = is_too_small_to_share(choice.prepared);
    auto kernel = std::make_unique<tsr_abi_kernel>();
    kernel->kernel = std::move(choice.prepared.kernel);
    kernel->runs_alone = runs_alone;
    kernel->input_bytes = bytes_of({desc->inputs, static_cast<size_t>(desc->input_count)});
    kernel->output_bytes = bytes_of({desc->outputs, static_cast<size_t>(desc->output_count)});
    kernel->workspace_bytes = choice.prepared.workspace_bytes;
    *out = kernel.release();
    return {};
  });
}
void kernel_destroy(tsr_abi_kernel* kernel) { delete kernel; }

tsr_abi_error* kernel_launch(tsr_abi_kernel* kernel, tsr_abi_stream* stream, const void* const* inputs,
                             void* const* outputs, void* workspace) {
  return guarded([&] {
    kernel->kernel->launch(
        LaunchArgs{inputs, outputs, workspace, Pool(*stream->device->host, kernel->runs_alone)});
    return Status();
  });
}

// All that can join a group, up to the first that cannot.
tsr_abi_error* kernel_fuse(tsr_abi_device*, const tsr_abi_launch* launches, int32_t count, int32_t* taken,
                           tsr_abi_kernel** out) {
  constexpr int32_t kMostMembers = 256;
  return guarded([&]() -> Status {
    std::vector<GroupMember> members;
    for (int32_t i = 0; i < std::min(count, kMostMembers); ++i) {
      const tsr_abi_launch& launch = launches[i];
      const tsr_abi_kernel& kernel = *launch.kernel;
      const GroupMember member{.kernel = kernel.kernel.get(),
                               .runs_alone = kernel.runs_alone,
                               .inputs = launch.inputs,
                               .outputs = launch.outputs,
                               .workspace = launch.workspace,
                               .input_bytes = kernel.input_bytes,
                               .output_bytes = kernel.output_bytes,
                               .workspace_bytes = kernel.workspace_bytes};
      if (!member.can_join()) break;
      members.push_back(member);
    }
    *taken = 0;
    *out = nullptr;
    if (members.size() < 2) return {};
    auto group = std::make_unique<tsr_abi_kernel>();
    group->kernel = std::make_unique<KernelGroup>(members);
    *taken = static_cast<int32_t>(members.size());
    *out = group.release();
    return {};
  });
}

uint64_t kernel_fingerprint(int32_t) {
  constexpr int32_t kEstimateVersion = 2;
  const Rates rates = machine_rates();
  const std::string basis =
      tessera::format("{} {} {} {} {} {}", kEstimateVersion, rates.isa, rates.cores, rates.matmul_flops_per_s,
                      rates.memory_bytes_per_s, rates.launch_s);
  return tessera::table_fingerprint(basis, kernel_table());
}

// ---- communicators

tsr_abi_error* comm_create(tsr_abi_device* const* devices, int32_t count, tsr_abi_comm** out) {
  return guarded([&]() -> Status {
    if (count < 1)
      return Status(StatusCode::kInvalidArgument, tessera::format("a group of {} members", count));
    auto ends = Communicator::create(*devices[0]->host, count);
    for (int32_t i = 0; i < count; ++i) out[i] = nullptr;
    try {
      for (int32_t i = 0; i < count; ++i) out[i] = new tsr_abi_comm{std::move(ends[static_cast<size_t>(i)])};
    } catch (...) {
      for (int32_t i = 0; i < count; ++i) delete out[i];
      throw;
    }
    return {};
  });
}
void comm_destroy(tsr_abi_comm* comm) { delete comm; }

tsr_abi_error* comm_collective(tsr_abi_comm* comm, tsr_abi_stream*, const tsr_abi_collective* what,
                               const void* in, void* out) {
  return guarded([&] { return comm->end->collective(*what, in, out); });
}
tsr_abi_error* comm_send(tsr_abi_comm* comm, tsr_abi_stream*, int32_t peer, const void* in, int64_t bytes) {
  return guarded([&] { return comm->end->send(peer, in, bytes); });
}
tsr_abi_error* comm_recv(tsr_abi_comm* comm, tsr_abi_stream*, int32_t peer, void* out, int64_t bytes) {
  return guarded([&] { return comm->end->receive(peer, out, bytes); });
}
tsr_abi_error* comm_group_begin(tsr_abi_comm* comm) {
  return guarded([&] { return comm->end->begin_exchange(); });
}
tsr_abi_error* comm_group_end(tsr_abi_comm* comm, tsr_abi_stream*) {
  return guarded([&] { return comm->end->end_exchange(); });
}
void comm_abort(tsr_abi_comm* comm) { comm->end->abort(); }
void comm_perturb(tsr_abi_comm* comm, uint64_t seed) { comm->end->perturb(seed); }
void comm_counters(tsr_abi_comm* comm, tsr_abi_comm_counters* out) {
  tessera::copy_counters(comm->end->counters(), out);
}

tsr_abi_error* weight_arrange(const tsr_abi_kernel_desc* desc, int32_t operand, const void* in, void* out) {
  return guarded([&]() -> Status {
    const tessera::KernelSpec spec(*desc);
    // By name: a backend knows ops by the names of its kernel table alone.
    if (!(spec.op() == "quantized_matmul" && operand == 1) && !(spec.op() == "embedding" && operand == 0))
      return Status(StatusCode::kUnsupported,
                    tessera::format("operand {} of '{}' has one order alone", operand, spec.op()));
    const std::span<const int64_t> w = spec.input_dims(operand);
    interleave_rows(spec.input_dtype(operand), w[0], w[1], static_cast<const std::byte*>(in),
                    static_cast<std::byte*>(out), 0, (w[0] + interleaved_rows() - 1) / interleaved_rows());
    return {};
  });
}

constexpr tsr_backend_api kApi = {
    .struct_size = sizeof(tsr_backend_api),
    .name = "cpu",
    .abi_version = 1,
    .unavailable_reason = []() -> const char* { return nullptr; },
    .device_count = [] { return INT32_MAX; },
    .device_info = device_info,
    .device_open = device_open,
    .device_close = device_close,
    .memory_alloc = memory_alloc,
    .memory_free = memory_free,
    .stream_create = stream_create,
    .stream_destroy = stream_destroy,
    .stream_synchronize = stream_synchronize,
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .stream_wait = stream_wait,
    .copy = copy,
    .fill = fill,
    .kernel_query = kernel_query,
    .kernel_prepare = kernel_prepare,
    .kernel_destroy = kernel_destroy,
    .kernel_launch = kernel_launch,
    .kernel_fingerprint = kernel_fingerprint,
    .comm_create = comm_create,
    .comm_destroy = comm_destroy,
    .comm_collective = comm_collective,
    .comm_send = comm_send,
    .comm_recv = comm_recv,
    .comm_abort = comm_abort,
    .comm_counters = comm_counters,
    .capture_begin = nullptr,
    .capture_end = nullptr,
    .replay = nullptr,
    .graph_destroy = nullptr,
    .comm_group_begin = comm_group_begin,
    .comm_group_end = comm_group_end,
    .flags = TSR_BACKEND_BLOCKING | TSR_BACKEND_FUSES_EXACTLY,
    .comm_perturb = comm_perturb,
    .kernel_fuse = kernel_fuse,
    .kernel_tune = nullptr,
    .timed_event_create = nullptr,
    .event_elapsed = nullptr,
    .memory_info = nullptr,
    .comm_create_for = nullptr,
    .weight_arrange = weight_arrange,
};

}  // namespace

extern "C" const tsr_backend_api* tsr_cpu_backend_entry(const tsr_host_api* host) {
  g_errors.keep(*host);
  return &kApi;
}

#include "graph/base/cancellation.h"
#include "graph/base/text.h"
#include "runtime/executable_impl.h"
#include "runtime/kernel_description.h"

namespace tessera {

namespace {

// Prepares the recorded variant; its workspace must fit the Program's plan.
Result<tsr_abi_kernel*> prepare_kernel(const tsr_backend_api& api, tsr_abi_device* device, int32_t ordinal,
                                       const KernelDesc& desc) {
  if (desc.op == nullptr) return Status(StatusCode::kInvalidArgument, "a kernel without an op");
  const OpView view{desc.attrs, desc.inputs, desc.outputs, desc.factors};
  const KernelDescription description(*desc.op, view, desc.variant);
  tsr_abi_kernel_info info{};
  info.struct_size = sizeof(info);
  TSR_RETURN_IF_ERROR(take_error(api.kernel_query(ordinal, &description.abi(), &info)));
  if (info.workspace_bytes > desc.workspace_bytes)
    return Status(
        StatusCode::kFailedPrecondition,
        format("{} ({}) needs {} bytes of workspace, the program has {}; lower it again on this machine",
               desc.op->name, desc.variant, info.workspace_bytes, desc.workspace_bytes));
  tsr_abi_kernel* kernel = nullptr;
  TSR_RETURN_IF_ERROR(take_error(api.kernel_prepare(device, &description.abi(), &kernel)));
  return kernel;
}

}  // namespace

Executable::Executable(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Executable::~Executable() = default;
const Program& Executable::program() const { return impl_->program; }
DeviceSet& Executable::devices() const { return *impl_->devices; }

Result<std::shared_ptr<Executable>> Executable::prepare(std::shared_ptr<DeviceSet> devices, Program program) {
  TSR_RETURN_IF_ERROR(verify(program).with_context("program"));
  if (const RankSet wanted = program.rank_set(), found = devices->ranks(); wanted.world != found.world)
    return Status(StatusCode::kInvalidArgument,
                  format("the program is for {} ranks, '{}' has {} devices; plan again for these devices", wanted.world,
                         devices->text(), found.world));
  else if (wanted != found)
    return Status(StatusCode::kInvalidArgument,
                  format("the program has the ranks {} to {}, this process has {} to {}", wanted.first,
                         wanted.first + wanted.count - 1, found.first, found.first + found.count - 1));
  auto impl = std::make_unique<Impl>();
  impl->devices = std::move(devices);
  impl->program = std::move(program);
  const DeviceSet::Impl& set = impl->devices->impl();
  impl->kernels.resize(impl->program.ranks.size());
  for (size_t at = 0; at < impl->program.ranks.size(); ++at) {
    for (const KernelDesc& desc : impl->program.ranks[at].kernels) {
      cancellation_point();
      Result<tsr_abi_kernel*> kernel = prepare_kernel(*set.api, set.devices[at], set.ordinals[at], desc);
      if (!kernel.ok())
        return kernel.status().with_context(
            format("rank {}: preparing {}", impl->program.rank_of(at), desc.op != nullptr ? desc.op->name : "?"));
      impl->kernels[at].push_back(*kernel);
    }
  }
  return std::shared_ptr<Executable>(new Executable(std::move(impl)));
}

}  // namespace tessera

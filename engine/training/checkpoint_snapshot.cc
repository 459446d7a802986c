#include "engine/training/checkpoint_snapshot.h"

#include <algorithm>
#include <span>
#include <string_view>

#include "graph/base/cancellation.h"
#include "graph/base/progress.h"

namespace tessera {

Result<WrittenCheckpoint> CheckpointSnapshot::write(const std::string& folder) const {
  size_t all = 1, written = 0, next = 0;
  for (const auto& value : values) all += value.size();
  // write_checkpoint asks for tensors in stored order.
  return write_checkpoint(folder, info, [&](std::string_view, std::span<std::byte> out) -> Status {
    cancellation_point();
    report_progress(static_cast<double>(written) / static_cast<double>(all));
    std::ranges::copy(values[next++], out.begin());
    written += out.size();
    return {};
  });
}

}  // namespace tessera

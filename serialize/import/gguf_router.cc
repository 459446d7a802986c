#include "serialize/import/gguf_router.h"

#include "graph/base/text.h"

namespace tessera {

Status check_softmax_router(const GgufFile& file, const std::string& prefix, bool of_chosen) {
  TSR_ASSIGN_OR_RETURN(const int64_t shared, file.integer(prefix + "expert_shared_count", 0));
  if (shared != 0)
    return Status(StatusCode::kUnsupported,
                  format("{}expert_shared_count is {}; only models without it (or with 0) can be imported", prefix, shared));
  // GGUF's numbers; the last divides by the sum of the chosen, as every normalised softmax.
  constexpr int64_t kSoftmax = 1, kSoftmaxOfChosen = 3;
  TSR_ASSIGN_OR_RETURN(const int64_t gating, file.integer(prefix + "expert_gating_func", kSoftmax));
  if (gating == kSoftmax || gating == 0 || (gating == kSoftmaxOfChosen && of_chosen)) return {};
  return Status(StatusCode::kUnsupported,
                format("{}expert_gating_func is {}; only models whose routers end with a softmax ({}) can be imported", prefix, gating,
                       kSoftmax));
}

}  // namespace tessera

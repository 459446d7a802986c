#include "serialize/import/gguf_router.h"

#include <string>

#include "graph/base/text.h"

namespace tessera {

Status check_router(const GgufFile& file, const GgufArchitecture& architecture) {
  // GGUF's numbers; the last divides by the sum of the chosen, as every normalised softmax.
  constexpr int64_t kSoftmax = 1, kSigmoid = 2, kSoftmaxOfChosen = 3;
  const std::string prefix = std::string(architecture.name) + ".";
  const int64_t wanted = architecture.sigmoid_router ? kSigmoid : kSoftmax;
  TSR_ASSIGN_OR_RETURN(const int64_t shared, file.integer(prefix + "expert_shared_count", 0));
  if (shared != 0 && !architecture.sigmoid_router)
    return Status(StatusCode::kUnsupported,
                  format("{}expert_shared_count is {}; only models without it (or with 0) can be imported", prefix, shared));
  TSR_ASSIGN_OR_RETURN(const int64_t gating, file.integer(prefix + "expert_gating_func", wanted));
  if (gating == wanted || gating == 0 || (gating == kSoftmaxOfChosen && architecture.softmax_of_chosen)) return {};
  return Status(StatusCode::kUnsupported,
                format("{}expert_gating_func is {}; only models whose routers end with a {} ({}) can be imported", prefix, gating,
                       architecture.sigmoid_router ? "sigmoid" : "softmax", wanted));
}

}  // namespace tessera

// DeviceCatalog: a KernelCatalog answered by a backend's kernel_query. Devices of a
// set are of one kind, so device 0 answers for all. Answers and refusals are cached.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "graph/device_profile.h"
#include "graph/kernel_catalog.h"
#include "runtime/backend_abi.h"

namespace tessera {

class DeviceCatalog final : public KernelCatalog {
 public:
  // `seconds_scale` corrects the backend's seconds for a
  // pool smaller or larger than the machine they assume.
  DeviceCatalog(const tsr_backend_api& api, int32_t ordinal, double seconds_scale)
      : api_(api), ordinal_(ordinal), seconds_scale_(seconds_scale) {}

  Result<KernelChoice> query(const OpDef& op, const OpView& view) const override;
  bool fuses() const override;
  bool fuses_exactly() const override;
  uint64_t fingerprint() const override;

  // Later answers name these algorithms. False, without
  // effect, if they are of another device, library or build.
  bool use(const AlgorithmChoices& algorithms);
  uint64_t backend() const;  // AlgorithmChoices::backend of these devices

 private:
  Result<KernelChoice> ask(const OpDef& op, const OpView& view, const std::string& variant) const;

  const tsr_backend_api& api_;
  int32_t ordinal_;
  double seconds_scale_;
  mutable std::mutex mutex_;
  std::unordered_map<std::string, std::string> algorithms_;  // question_text -> variant
  uint64_t algorithms_hash_ = 0;
  mutable std::unordered_map<std::string, Result<KernelChoice>> answers_;
};

}  // namespace tessera

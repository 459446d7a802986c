// Certificate of a composed search: evidence that no plan of its space beats a bound, checkable without searching.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/composed_search.h"

namespace tessera {

struct ComposedCertificate {
  std::string plan;  // its strategy
  double step_s = 0, bound_s = 0;
  std::vector<ComposedEntry> composed;  // every plan not closed by a bound, with its cost
};

struct CertificateCheck {
  int64_t configurations = 0;  // plans of the space
  int64_t composed = 0, closed_by_bound = 0, too_large = 0;
};

ComposedCertificate certificate_of(const ComposedSearchResult& result);

// Enumerates the space again independently: every plan must have a sufficient bound, not fit, or be listed, and
// listed plans must have the claimed cost. kCorrupt names the first false claim, with what was found and wanted.
Result<CertificateCheck> check_certificate(const ComposedModel& model, const Cluster& cluster,
                                           const KernelCatalog& catalog, const ComposedSearchOptions& options,
                                           const ComposedCertificate& certificate);

}  // namespace tessera

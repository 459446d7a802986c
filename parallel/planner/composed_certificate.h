// Certificate of a composed search: what shows that no plan of its space is faster than a bound, for a check that searches nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/composed_search.h"

namespace tessera {

struct ComposedCertificate {
  std::string plan;  // its words
  double step_s = 0, bound_s = 0;
  std::vector<ComposedEntry> composed;  // every plan that no bound closes, with what it takes
};

struct CertificateCheck {
  int64_t configurations = 0;  // plans of the space
  int64_t composed = 0, closed_by_bound = 0, too_large = 0;
};

ComposedCertificate certificate_of(const ComposedSearchResult& result);

// Goes through the whole space again, in its own order: every plan has a bound that reaches the step, cannot fit, or is listed, and what is
// listed takes what is claimed. kCorrupt names the first claim that does not hold, with what was found and wanted.
Result<CertificateCheck> check_certificate(const ComposedModel& model, const Cluster& cluster,
                                           const KernelCatalog& catalog, const ComposedSearchOptions& options,
                                           const ComposedCertificate& certificate);

}  // namespace tessera

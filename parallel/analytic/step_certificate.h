// A certificate of a step's search: the plan found, the bound claimed, and for every configuration of the
// space how it was done with. Whoever doubts the search need not run it: the check re-evaluates the plan,
// counts the space anew, and proves every claim with bounds of its own (analytic/certificate_bounds.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/step_search.h"

namespace tessera {

struct CertificateEntry {
  std::string plan;  // in the words of --parallel
  ClosedBy by = ClosedBy::kBound;
  double bound_s = 0;
  double step_s = 0;  // kSolved
};

struct StepCertificate {
  std::string plan;  // of the configuration that the plan found belongs to
  std::vector<StageBlocks> stages;
  double step_s = 0, bound_s = 0, gap = 0;
  std::vector<CertificateEntry> configurations;
};

// Whether the bound claimed is `bound_s`, the least that is claimed of any configuration or of the plan
// found, and the gap what lies between the two.
Status check_bound_and_gap(const StepCertificate& certificate, double bound_s);

StepCertificate certificate_of(const StepSearchResult& result);

struct CertificateCheck {
  int64_t configurations = 0;
  int64_t by_closed_form = 0;  // claims proved without looking at cuts
  int64_t by_cuts = 0;         // over all cuts and contents of stages
  int64_t too_large = 0;       // proved not to fit
};

// kCorrupt with the first claim that does not hold: what was found, what was wanted.
Result<CertificateCheck> check_certificate(const TransformerShape& model, const Cluster& cluster,
                                           const StepSearchOptions& options,
                                           const StepCertificate& certificate);

}  // namespace tessera

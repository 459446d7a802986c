// Certificate of a search in the whole space: the plan found, the bound claimed, and those configurations that
// a closed form does not close, each with its bound and the best step known when it was solved. The check goes
// through the space again: what is not listed must take as long as the plan found, what is listed as long as
// is claimed of it. It shares prices and bounds of configurations (analytic/wide_solver) with the search, but
// not its order, its best plans or its queue: an error in these bounds is in the check as well.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/step_search.h"

namespace tessera {

struct CertificateEntry {
  std::string plan;    // in the words of --parallel
  double bound_s = 0;  // no plan of it is faster
  double step_s = 0;   // the best step known when it was solved
};

struct StepCertificate {
  std::string plan;  // of the configuration that the plan found belongs to
  std::vector<StageBlocks> stages;
  double step_s = 0, bound_s = 0, gap = 0;
  std::vector<CertificateEntry> configurations;
};

// `result` is of a search with options.wide.
StepCertificate wide_certificate_of(const StepSearchResult& result);

struct CertificateCheck {
  int64_t configurations = 0;
  int64_t by_closed_form = 0;  // families and configurations proved without looking at cuts
  int64_t by_cuts = 0;         // configurations solved again
  int64_t too_large = 0;       // proved not to fit
};

// kCorrupt with the first claim that does not hold: the value found and the value wanted.
Result<CertificateCheck> check_wide_certificate(const TransformerShape& model, const Cluster& cluster,
                                                const StepSearchOptions& options,
                                                const StepCertificate& certificate);

}  // namespace tessera

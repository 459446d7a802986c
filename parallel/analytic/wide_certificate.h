// Certificates of searches in the whole space. They hold the plan found, the bound claimed, and those
// configurations that a closed form does not close: what is claimed of each, and what was the best step known
// when it was solved. The check goes through the space anew: whatever is not listed must be proved to take as
// long as the plan found, what is listed as long as is claimed of it. It shares prices and bounds of
// configurations (analytic/wide_solver) with the search, but not its order, its best plans or its queue: an
// error in these bounds is in the check as well.
#pragma once

#include "parallel/analytic/step_certificate.h"

namespace tessera {

// `result` is of a search with options.wide.
StepCertificate wide_certificate_of(const StepSearchResult& result);

// As check_certificate; kCorrupt with the first claim that does not hold. by_closed_form counts families and
// configurations, by_cuts configurations solved again.
Result<CertificateCheck> check_wide_certificate(const TransformerShape& model, const Cluster& cluster,
                                                const StepSearchOptions& options,
                                                const StepCertificate& certificate);

}  // namespace tessera

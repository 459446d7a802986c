// Search over training plans that are composed rather than lowered (composed_plan.h). Best first: groups and
// plans are taken by their bounds (composed_bound.h), until no bound is below the fastest plan that fits.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "parallel/planner/composed_plan.h"
#include "parallel/planner/plan_space.h"
#include "parallel/planner/planner.h"
#include "parallel/strategy/strategy.h"

namespace tessera {

struct ComposedSearchOptions {
  std::string parallel;      // fixed part of the strategy, as in --parallel
  int64_t global_batch = 1;  // sequences per step
  int64_t tokens = 0;        // per sequence
  int64_t memory_limit = 0;  // bytes per device that a plan may use
  double within = 0;  // among plans slower by at most this share, prefers least tensor parallelism
  // The device limit under which a plan of these bytes fits; empty: equal.
  std::function<int64_t(int64_t)> limit_for = {};
};

// ComposedEntry: a composed plan.
struct ComposedEntry {
  std::string strategy;
  double seconds = 0;  // step time
  int64_t bytes = 0;   // of its fullest device
};

struct ComposedSearchResult {
  ComposedPlan plan;                   // the chosen plan
  ComposedPlan fastest;                // differs only with `within`
  PlanSearch search;                   // its bound: no plan of the space is faster
  std::vector<ComposedEntry> entries;  // fastest first, then those that do not fit
};

// The properties of the whole model that determine the space.
SpaceOfGraph composed_graph(const ComposedModel& model, const Cluster& cluster,
                            const ComposedSearchOptions& options);

// kOutOfMemory if nothing fits, with the smallest sufficient limit found. kInvalidArgument if no plan has the given strategy.
Result<ComposedSearchResult> search_composed(const ComposedModel& model, const Cluster& cluster,
                                             const KernelCatalog& catalog,
                                             const ComposedSearchOptions& options);

// --- certificate: evidence that no plan of the space beats a bound, checkable without searching ---

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

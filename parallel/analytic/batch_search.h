// The batch as something to choose: of the steps of several batches the one that processes most sequences a
// second, since the shortest step is always that of the smallest batch.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "graph/base/result.h"
#include "parallel/analytic/kinds_search.h"

namespace tessera {

// Batches from `least` to `most`: every multiple of `every`, or, where that is 0, every 2^k and 3 x 2^k, with
// both ends.
struct BatchRange {
  int64_t least = 1, most = 1, every = 0;
  // Of the fastest the one that needs the smallest batch within this share of its rate: ever larger batches
  // gain ever less, and a batch is not free for who trains with it.
  double close = 0;
};

// "auto" (one to 64 sequences a device, within 5 %), "256..4096", "256..4096/64".
Result<BatchRange> parse_batch_range(std::string_view text, int64_t devices);
std::vector<int64_t> batches_of(const BatchRange& range);

struct BatchSearchResult {
  int64_t batch = 0;
  StepSearchResult step;   // of that batch
  double per_s = 0;        // sequences a second
  double bound_per_s = 0;  // no plan with a batch of the range processes more
  int64_t looked = 0;      // batches, the one chosen included
};

// options.global_batch is not looked at.
Result<BatchSearchResult> search_batch(const TransformerShape& model, const Fleet& fleet,
                                       const StepSearchOptions& options, const BatchRange& range);
inline Result<BatchSearchResult> search_batch(const TransformerShape& model, const Cluster& cluster,
                                              const StepSearchOptions& options, const BatchRange& range) {
  return search_batch(model, Fleet{{cluster}}, options, range);
}

}  // namespace tessera

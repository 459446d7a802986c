// TokenBatch of a caller's tsr_batch.
#pragma once

#include "capi/public_structs.h"
#include "engine/data/token_batch.h"

namespace tessera::capi {

inline Result<TokenBatch> token_batch(const tsr_batch* batch) {
  TSR_ASSIGN_OR_RETURN(const tsr_batch it, copy_struct<tsr_batch>(batch));
  return TokenBatch{it.rows,     it.seq,     it.tokens,           it.labels,    it.positions,
                    it.segments, it.weights, it.sampler_logprobs, it.advantages};
}

}  // namespace tessera::capi

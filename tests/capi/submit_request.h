// Requests for a ServingCore, each with a number of its own.
#pragma once

#include <utility>

#include "engine/serving/scheduler/serving_core.h"

namespace tessera::serving_tests {

inline Result<int64_t> submit(ServingCore& core, const ServingRequest& request) {
  static int64_t next = 0;
  TSR_ASSIGN_OR_RETURN(ServingCore::Texts texts, core.make_texts(request, next));
  core.add(std::move(texts));
  return next++;
}

}  // namespace tessera::serving_tests

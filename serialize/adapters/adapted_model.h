// AdaptedModel: a model with adapters, as exporters see it: the base that they are of, and their values.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "graph/base/result.h"
#include "graph/transform/adapters.h"
#include "serialize/export/exported_config.h"
#include "serialize/opened_model.h"

namespace tessera {

struct AdaptedModel {
  Graph base;  // without adapters, with weights in the types that they are computed in
  ExportedConfig config;
  // Adapters with a start (PiSSA) as ordinary ones of twice the rank: B A - B0 A0 is [B, -B0] [A; A0].
  std::vector<Adapter> adapters;
  std::map<std::string, HostTensor> values;  // f32, of the adapters' parameters
  std::vector<std::string> trained;          // parameters of the base that train as well
};

// kFailedPrecondition where there are no adapters; errors of exported_config.
Result<AdaptedModel> adapted_model(const OpenedModel& opened);

}  // namespace tessera

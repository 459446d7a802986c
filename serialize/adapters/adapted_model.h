// AdaptedModel: a model with adapters as exporters see it: the base, and the adapters' values.
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
  Graph base;  // without adapters, in computed weight types
  ExportedConfig config;
  // PiSSA adapters become ordinary ones of twice the rank: B A - B0 A0 is [B, -B0] [A; A0].
  std::vector<Adapter> adapters;
  std::map<std::string, HostTensor> values;  // f32, of the adapters' parameters
  std::vector<std::string> trained;          // parameters of the base that also train
};

// kFailedPrecondition without adapters; errors of exported_config.
Result<AdaptedModel> adapted_model(const OpenedModel& opened);

}  // namespace tessera

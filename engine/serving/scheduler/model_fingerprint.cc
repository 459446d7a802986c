#include "engine/serving/scheduler/model_fingerprint.h"

#include <algorithm>
#include <optional>
#include <string>

#include "graph/base/hash.h"
#include "serialize/envelope.h"

namespace tessera {

namespace {

uint64_t sample(std::span<const std::byte> bytes) {
  constexpr size_t kPart = 4096;
  const size_t part = std::min(kPart, bytes.size());
  Hash hash;
  for (const size_t begin : {size_t{0}, (bytes.size() - part) / 2, bytes.size() - part})
    hash.add(xxh3(bytes.subspan(begin, part)));
  return hash.value();
}

}  // namespace

Result<uint64_t> model_fingerprint(const SharedModel& model, const InferenceSettings& inference) {
  // Parameters in a file are read through a mapping.
  if (const auto source = model.source()) TSR_RETURN_IF_ERROR(source->unchanged());
  Hash hash;
  hash.add(model.graph().fingerprint());
  hash.add(to_text(inference.precision));
  hash.add(inference.tf32_matmuls);
  hash.add(inference.weights ? to_text(*inference.weights) : std::string());
  hash.add(static_cast<uint8_t>(inference.activations));
  for (const std::string& name : model.parameter_names()) {
    TSR_ASSIGN_OR_RETURN(const std::optional<SharedModel::Value> value, model.find(name));
    HostTensor tensor;
    if (value) {
      tensor = value->tensor;
    } else {
      TSR_ASSIGN_OR_RETURN(tensor, model.read_uncached(name, model.seed()));
    }
    hash.add(name);
    hash.add(to_text(tensor.type));
    hash.add(sample(tensor.data));
  }
  return hash.value();
}

}  // namespace tessera

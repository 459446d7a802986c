// Models with all their values, in place where they can be.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "serialize/model.h"
#include "serialize/opened_model.h"
#include "serialize/tensor_source.h"

namespace tessera {

inline Result<Model> read_values(OpenedModel opened) {
  for (const TensorSource& parameter : opened.parameters) {
    TSR_ASSIGN_OR_RETURN(HostTensor value, read_whole(parameter));
    opened.model.parameters.emplace(parameter.name, std::move(value));
  }
  return std::move(opened.model);
}

inline Result<Model> load_model(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_tsr(std::move(source)));
  return read_values(std::move(opened));
}

inline Result<Model> load_model(const std::string& path) {
  TSR_ASSIGN_OR_RETURN(std::shared_ptr<const ByteSource> source, open_file(path));
  Result<Model> model = load_model(std::move(source));
  if (!model.ok()) return model.status().with_context(path);
  return model;
}

inline Result<Model> import_gguf(std::shared_ptr<const ByteSource> source) {
  TSR_ASSIGN_OR_RETURN(OpenedModel opened, open_gguf(std::move(source)));
  return read_values(std::move(opened));
}

}  // namespace tessera

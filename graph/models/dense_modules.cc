#include "graph/models/dense_modules.h"

#include "graph/base/text.h"

namespace tessera {

DenseModules read_dense_modules(ConfigReader& config) {
  DenseModules modules;
  modules.widths = config.widths("dense", kMostDenseModules);
  modules.bias = config.flag("dense_bias", false);
  config.check(!modules.bias || !modules.widths.empty(), "dense_bias without dense, wanted the widths of modules with a bias");
  return modules;
}

TensorId add_dense_modules(LayerBuilder& b, const DenseModules& modules, TensorId x, int64_t C) {
  for (size_t i = 0; i < modules.widths.size(); ++i) {
    const std::string name = format("dense.{}", i);
    x = b.linear(x, name, C, modules.widths[i], modules.bias);
    C = modules.widths[i];
  }
  return x;
}

}  // namespace tessera

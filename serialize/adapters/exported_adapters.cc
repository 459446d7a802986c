#include "serialize/adapters/exported_adapters.h"

#include <algorithm>

#include "graph/base/text.h"
#include "serialize/adapters/adapter_values.h"
#include "serialize/head_rows.h"

namespace tessera {
namespace {

struct Part {
  const ForeignModule::Part* place;
  const Adapter* adapter;
};

class Joining {
 public:
  Joining(const ForeignModule& module, std::vector<Part> parts,
          const std::map<std::string, HostTensor>& values, const std::vector<int64_t>& order)
      : module_(module), parts_(std::move(parts)), values_(values), order_(order) {}

  ExportedAdapter run() {
    ExportedAdapter made{.module = module_.name,
                         .is_table = module_.is_table,
                         .rank = 0,
                         .factor = parts_[0].adapter->factor,
                         .a = {},
                         .b = {},
                         .bias = {},
                         .magnitude = {}};
    if (module_.is_table) {
      made.rank = parts_[0].adapter->rank;
      made.a = values_.at(parts_[0].adapter->a);
      made.b = values_.at(parts_[0].adapter->b);
      return made;
    }
    // First column of b by first matrix.
    std::map<std::string, int64_t> columns;
    std::vector<float> a;
    for (const Part& part : parts_) {
      if (!columns.emplace(part.adapter->a, made.rank).second) continue;
      made.rank += part.adapter->rank;
      const HostTensor rows = oriented(*part.adapter, values_.at(part.adapter->a));
      a.insert(a.end(), rows.as<float>().begin(), rows.as<float>().end());
    }
    made.a = f32_matrix(made.rank, module_.columns, a);
    std::vector<float> b(static_cast<size_t>(module_.rows * made.rank)),
        bias(static_cast<size_t>(module_.rows));
    bool has_bias = false;
    for (const Part& part : parts_) {
      const Adapter& adapter = *part.adapter;
      const HostTensor own = in_order(part, oriented(adapter, values_.at(adapter.b)));
      const double scale = adapter.factor == made.factor ? 1 : adapter.factor / made.factor;
      const auto rank = static_cast<size_t>(adapter.rank);
      for (int64_t row = 0; row < part.place->rows; ++row)
        for (size_t i = 0; i < rank; ++i)
          b[static_cast<size_t>((part.place->first_row + row) * made.rank + columns[adapter.a]) + i] =
              static_cast<float>(own.as<float>()[static_cast<size_t>(row) * rank + i] * scale);
      if (adapter.bias.empty()) continue;
      has_bias = true;
      const HostTensor added = in_order(part, values_.at(adapter.bias));
      std::ranges::transform(added.as<float>(), bias.begin() + part.place->first_row,
                             [&](float value) { return static_cast<float>(value * scale); });
    }
    made.b = f32_matrix(module_.rows, made.rank, b);
    if (!parts_[0].adapter->magnitude.empty()) {
      std::vector<float> magnitude(static_cast<size_t>(module_.rows));
      for (const Part& part : parts_)
        std::ranges::copy(in_order(part, values_.at(part.adapter->magnitude)).as<float>(),
                          magnitude.begin() + part.place->first_row);
      made.magnitude = HostTensor::copy_of<float>({DType::kF32, {module_.rows}}, magnitude);
    }
    if (has_bias) made.bias = HostTensor::copy_of<float>({DType::kF32, {module_.rows}}, bias);
    return made;
  }

 private:
  // Orients matrices as [N, rank] and [rank, K].
  static HostTensor oriented(const Adapter& adapter, const HostTensor& matrix) {
    return adapter.transposed ? matrix : transposed_matrix(matrix);
  }
  HostTensor in_order(const Part& part, const HostTensor& rows) const {
    if (order_.empty() || !has_rotated_rows(part.place->parameter)) return rows;
    return rows_of(rows, 0, part.place->rows, order_);
  }

  const ForeignModule& module_;
  const std::vector<Part> parts_;
  const std::map<std::string, HostTensor>& values_;
  const std::vector<int64_t>& order_;
};

}  // namespace

Result<std::vector<ExportedAdapter>> exported_adapters(const std::vector<ForeignModule>& modules,
                                                       const std::vector<Adapter>& adapters,
                                                       const std::map<std::string, HostTensor>& values,
                                                       const std::vector<int64_t>& order) {
  std::vector<ExportedAdapter> made;
  for (const ForeignModule& module : modules) {
    std::vector<Part> parts;
    for (const ForeignModule::Part& place : module.parts)
      if (const auto found = std::ranges::find(adapters, place.parameter, &Adapter::weight);
          found != adapters.end())
        parts.push_back({&place, &*found});
    // Adapters with factor 0 come last, since their scale determines nothing.
    std::ranges::stable_sort(parts, {}, [](const Part& part) { return part.adapter->factor == 0; });
    const auto has_magnitude = [](const Part& part) { return !part.adapter->magnitude.empty(); };
    if (std::ranges::any_of(parts, has_magnitude) &&
        (parts.size() < module.parts.size() || !std::ranges::all_of(parts, has_magnitude)))
      return Status(
          StatusCode::kUnsupported,
          format("'{}' is one tensor there, and only some of its parts have magnitudes (DoRA): wanted all "
                 "or none",
                 module.name));
    if (!parts.empty()) made.push_back(Joining(module, std::move(parts), values, order).run());
  }
  return made;
}

}  // namespace tessera

#include "engine/model/principal_adapters.h"

#include <cmath>
#include <map>

#include "graph/base/singular_vectors.h"
#include "graph/base/text.h"
#include "graph/transform/weight_storage.h"

namespace tessera {
namespace {

// Number of outputs N of a weight [N, K], or [K, N] if not `transposed`.
int64_t rows_of_weight(const HostTensor& weight, bool transposed) {
  return weight.type.shape[transposed ? 0 : 1];
}

// Appends the weight's values as [N, K].
void append_rows(std::vector<double>& all, const HostTensor& weight, bool transposed) {
  const auto append = [&](auto values) {
    const auto rows = static_cast<size_t>(weight.type.shape[0]),
               columns = static_cast<size_t>(weight.type.shape[1]);
    const size_t first = all.size();
    all.resize(first + values.size());
    for (size_t i = 0; i < rows; ++i)
      for (size_t j = 0; j < columns; ++j)
        all[first + (transposed ? i * columns + j : j * rows + i)] =
            static_cast<double>(values[i * columns + j]);
  };
  weight.type.dtype == DType::kF64 ? append(weight.as<double>()) : append(weight.as<float>());
}

// A matrix [rows, columns] of `values` in the weight's type, transposed if `turns`.
HostTensor matrix(const std::vector<double>& values, int64_t rows, int64_t columns, bool turns, DType dtype) {
  const auto fill = [&]<class T>(T) {
    std::vector<T> own(values.size());
    for (size_t i = 0; i < static_cast<size_t>(rows); ++i)
      for (size_t j = 0; j < static_cast<size_t>(columns); ++j)
        own[turns ? j * static_cast<size_t>(rows) + i : i * static_cast<size_t>(columns) + j] =
            static_cast<T>(values[i * static_cast<size_t>(columns) + j]);
    return HostTensor::copy_of<T>({dtype, turns ? Shape{columns, rows} : Shape{rows, columns}}, own);
  };
  return dtype == DType::kF64 ? fill(double{}) : fill(float{});
}

}  // namespace

Status initialize_principal_adapters(Model& model, const std::vector<Adapter>& adapters,
                          const std::function<Result<HostTensor>(const std::string&)>& read,
                          bool with_values) {
  std::map<std::string, std::vector<const Adapter*>> modules;  // by their first matrix
  for (const Adapter& it : adapters)
    if (!it.a0.empty()) modules[it.a].push_back(&it);
  for (const auto& [name, parts] : modules) {
    const Adapter& first = *parts[0];
    if (!(first.factor > 0))
      return Status(
          StatusCode::kInvalidArgument,
          format("adapters: what '{}' is given counts {} times, and principal values (PiSSA) want more "
                 "than 0: give an alpha above 0",
                 first.weight, first.factor));
    std::vector<double> w;
    std::vector<int64_t> rows;
    DType dtype = DType::kF32;
    for (const Adapter* part : parts) {
      TSR_ASSIGN_OR_RETURN(HostTensor weight, read(part->weight));
      if (weight.type.dtype != DType::kF64) {
        TSR_ASSIGN_OR_RETURN(weight, widen_weight(weight));
      }
      dtype = weight.type.dtype;
      rows.push_back(rows_of_weight(weight, part->transposed));
      append_rows(w, weight, part->transposed);
    }
    int64_t all_rows = 0;
    for (const int64_t each : rows) all_rows += each;
    const int64_t columns = static_cast<int64_t>(w.size()) / all_rows;
    Result<SingularVectors> found = largest_singular_vectors(w, all_rows, columns, first.rank);
    if (!found.ok()) return found.status().with_context(first.weight);
    std::vector<double> roots;
    for (const double value : found->values) roots.push_back(std::sqrt(value / first.factor));
    std::vector<double> a = found->v;
    for (size_t i = 0; i < a.size(); ++i) a[i] *= roots[i / static_cast<size_t>(columns)];
    int64_t row = 0;
    for (size_t p = 0; p < parts.size(); ++p) {
      std::vector<double> b;  // [rows, rank]
      for (int64_t i = row; i < row + rows[p]; ++i)
        for (size_t k = 0; k < roots.size(); ++k)
          b.push_back(found->u[k * static_cast<size_t>(all_rows) + static_cast<size_t>(i)] * roots[k]);
      row += rows[p];
      const bool turns = !parts[p]->transposed;
      const HostTensor a0 = matrix(a, first.rank, columns, turns, dtype),
                       b0 = matrix(b, rows[p], first.rank, turns, dtype);
      model.parameters.insert_or_assign(parts[p]->a0, a0);
      model.parameters.insert_or_assign(parts[p]->b0, b0);
      if (!with_values) continue;
      model.parameters.insert_or_assign(parts[p]->a, a0);
      model.parameters.insert_or_assign(parts[p]->b, b0);
    }
  }
  return {};
}

}  // namespace tessera

#include "engine/program/batch_rows.h"

#include <utility>

#include "engine/base/host_view.h"

namespace tessera {

// Positions restart with each document if several share a row; else they are fed once.
BatchRows BatchRows::of(const Dataset& dataset, int64_t batch) {
  BatchRows rows;
  rows.batch = batch, rows.width = dataset.row_tokens();
  const std::vector<int32_t> values(static_cast<size_t>(batch * rows.width));
  rows.tokens = rows.labels = values;
  if (dataset.layout() == Dataset::Layout::kPacked) rows.positions = values;
  if (dataset.layout() != Dataset::Layout::kWhole) rows.segments = values;
  if (dataset.has_weights()) rows.weights.resize(values.size());
  return rows;
}

DatasetRow BatchRows::row(int64_t row) {
  const auto part = [&](auto& values) {
    const std::span all(values);
    return all.empty() ? all : all.subspan(static_cast<size_t>(row * width), static_cast<size_t>(width));
  };
  return {part(tokens), part(labels), part(positions), part(segments), part(weights)};
}

double BatchRows::weight() const {
  double sum = 0;
  for (size_t i = 0; i < labels.size(); ++i)
    if (labels[i] >= 0) sum += weights.empty() ? 1 : double{weights[i]};
  return sum;
}

Status BatchRows::feed(ProgramRunner& runner, std::string_view entry) const {
  for (const auto& [input, values] : {std::pair("tokens", &tokens),
                                      {"labels", &labels},
                                      {"positions", &positions},
                                      {"segments", &segments}})
    if (!values->empty() && runner.has_input(entry, input))
      TSR_RETURN_IF_ERROR(runner.feed(entry, input, view_of(*values, Shape{batch, width})));
  if (!weights.empty() && runner.has_input(entry, "weights"))
    TSR_RETURN_IF_ERROR(runner.feed(entry, "weights", view_of(weights, Shape{batch, width})));
  return {};
}

}  // namespace tessera

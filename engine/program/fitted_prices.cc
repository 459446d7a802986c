#include "engine/program/fitted_prices.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera {

namespace {

constexpr double kLeastSeconds = 1e-9;  // floor for a coarse clock

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

}  // namespace

std::vector<double> never_falling(std::vector<double> seconds) {
  struct Block {
    double sum = 0;
    size_t count = 0;
    double mean() const { return sum / static_cast<double>(count); }
  };
  std::vector<Block> blocks;
  for (const double value : seconds) {
    blocks.push_back({std::log(std::max(value, kLeastSeconds)), 1});
    while (blocks.size() > 1 && blocks[blocks.size() - 2].mean() > blocks.back().mean()) {
      const Block last = blocks.back();
      blocks.pop_back();
      blocks.back().sum += last.sum;
      blocks.back().count += last.count;
    }
  }
  seconds.clear();
  for (const Block& block : blocks) seconds.insert(seconds.end(), block.count, std::exp(block.mean()));
  // Means of adjacent blocks may differ by rounding: make them monotonic.
  for (size_t i = 1; i < seconds.size(); ++i) seconds[i] = std::max(seconds[i], seconds[i - 1]);
  return seconds;
}

void raise_to_monotonic(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks) {
  size_t stride = 1;
  for (double& value : seconds) value = std::max(value, kLeastSeconds);
  for (size_t axis = marks.size(); axis-- > 0;) {
    const size_t count = marks[axis].size();
    for (size_t i = stride; i < seconds.size(); ++i)
      if (i / stride % count != 0) seconds[i] = std::max(seconds[i], seconds[i - stride]);
    stride *= count;
  }
}

void limit_to_scale(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks) {
  size_t stride = 1;
  for (size_t axis = marks.size(); axis-- > 0;) {
    const size_t count = marks[axis].size();
    for (size_t i = stride; i < seconds.size(); ++i) {
      const size_t at = i / stride % count;
      if (at == 0) continue;
      seconds[i] = std::min(seconds[i], seconds[i - stride] * marks[axis][at] / marks[axis][at - 1]);
    }
    stride *= count;
  }
}

namespace {

// The values along one axis from `start`.
std::vector<double> line_of(const std::vector<double>& seconds, size_t start, size_t stride, size_t count) {
  std::vector<double> line;
  for (size_t i = 0; i < count; ++i) line.push_back(seconds[start + i * stride]);
  return line;
}

}  // namespace

void make_consistent(std::vector<double>& seconds, const std::vector<std::vector<double>>& marks) {
  // Sweeps over all axes. Fitting one axis disturbs the others, less each time.
  constexpr int kSweeps = 20;
  for (int sweep = 0; sweep < kSweeps; ++sweep) {
    size_t stride = 1;
    for (size_t axis = marks.size(); axis-- > 0;) {
      const size_t count = marks[axis].size();
      for (size_t start = 0; start < seconds.size(); ++start) {
        if (start / stride % count != 0) continue;
        std::vector<double> line = never_falling(line_of(seconds, start, stride, count));
        // Rates must not fall either, from the last mark to the first.
        std::vector<double> rates;
        for (size_t i = count; i-- > 0;) rates.push_back(line[i] / marks[axis][i]);
        rates = never_falling(std::move(rates));
        for (size_t i = 0; i < count; ++i)
          seconds[start + i * stride] = rates[count - 1 - i] * marks[axis][i];
      }
      stride *= count;
    }
  }
  limit_to_scale(seconds, marks);
  raise_to_monotonic(seconds, marks);
  limit_to_scale(seconds, marks);
}

PriceCurve fit_curve(std::vector<MeasuredPoint> points, double spacing) {
  std::map<double, std::vector<double>> by_work;
  for (const MeasuredPoint& point : points) by_work[std::max(1.0, point.work)].push_back(point.seconds);
  PriceCurve all;
  for (const auto& [work, seconds] : by_work) {
    all.bytes.push_back(work);
    all.seconds.push_back(median(seconds));
  }
  all.seconds = never_falling(std::move(all.seconds));
  PriceCurve kept;
  for (size_t i = 0; i < all.bytes.size(); ++i) {
    const bool last = i + 1 == all.bytes.size();
    if (!kept.bytes.empty() && !last && all.bytes[i] < spacing * kept.bytes.back()) continue;
    kept.bytes.push_back(all.bytes[i]);
    kept.seconds.push_back(all.seconds[i]);
  }
  return kept;
}

PriceTable fit_table(std::string op, DType dtype, const std::vector<MeasuredPoint>& points, bool is_shared) {
  const PriceCurve alone = fit_curve(points);
  PriceTable table{std::move(op), "", dtype, {"bytes"}, {alone.bytes}, alone.seconds, {}};
  if (!is_shared) return table;
  std::vector<MeasuredPoint> shared = points;
  for (MeasuredPoint& point : shared) point.seconds = point.shared_seconds;
  table.shared_seconds = fit_curve(shared).seconds;
  return table;
}

std::vector<MeasuredPoint> combine_passes(const std::vector<std::vector<MeasuredPoint>>& passes) {
  std::vector<MeasuredPoint> points = passes[0];
  for (size_t i = 0; i < points.size(); ++i) {
    std::vector<double> alone, shared;
    for (const std::vector<MeasuredPoint>& pass : passes) {
      alone.push_back(pass[i].seconds);
      shared.push_back(pass[i].shared_seconds);
    }
    points[i].seconds = *std::ranges::max_element(alone);
    points[i].shared_seconds = median(std::move(shared));
  }
  return points;
}

PriceTable fill_table(PriceTable table, const std::vector<MeasuredPoint>& points, bool is_shared) {
  for (const MeasuredPoint& point : points) {
    table.seconds.push_back(point.seconds);
    if (is_shared) table.shared_seconds.push_back(point.shared_seconds);
  }
  make_consistent(table.seconds, table.marks);
  make_consistent(table.shared_seconds, table.marks);
  return table;
}

}  // namespace tessera

#include "capi/engine/fitted_prices.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace tessera {

namespace {

constexpr double kLeastSeconds = 1e-9;  // a clock that stood still

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
  // Means of neighbouring blocks that differ by rounding alone.
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
  for (size_t i = 0; i < table.seconds.size(); ++i)
    table.shared_seconds[i] = std::max(table.shared_seconds[i], table.seconds[i]);
  return table;
}

}  // namespace tessera

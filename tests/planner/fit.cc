#include "fit.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <tuple>

#include "parallel/analytic/step_time.h"

namespace tessera::planner_test {

namespace {

template <auto Where>
void scale(Cluster& cluster, double by) {
  Where(cluster) *= by;
}

double& half_rate(Cluster& c) { return c.kinds[0].matrix_rates[0].flops_per_s; }
double& ramp(Cluster& c) { return c.kinds[0].tile_ramp; }
double& batched(Cluster& c) { return c.kinds[0].batched_share; }
double& memory(Cluster& c) { return c.kinds[0].memory_bytes_per_s; }
double& launch(Cluster& c) { return c.kinds[0].launch_s; }
double& issue(Cluster& c) { return c.kinds[0].issue_s; }
double& network(Cluster& c) { return c.network.bytes_per_s; }
double& hop(Cluster& c) { return c.network.latency_s; }
double& node_link(Cluster& c) { return c.node_links[0].link.bytes_per_s; }

// All collectives inside a node alike: their curves were measured, in a loop that does nothing else.
void scale_node_links(Cluster& cluster, double by) {
  for (GroupLink& link : cluster.node_links) link.link.bytes_per_s *= by, link.link.latency_s /= by;
}

// The last figure: how firmly a constant is known beforehand. Peak rates bound products and memory; the cost
// of a launch depends on the software.
constexpr Constant kConstants[] = {
    {"f16 product rate", half_rate, scale<half_rate>, 30},
    {"tile ramp", ramp, scale<ramp>, 3},
    {"batched share", batched, scale<batched>, 3},
    {"memory rate", memory, scale<memory>, 8},
    {"launch", launch, scale<launch>, 0.3},
    {"issue", issue, scale<issue>, 1},
    {"node links", node_link, scale_node_links, 10},
    {"network rate", network, scale<network>, 0.5},
    {"network hop", hop, scale<hop>, 0.5},
};

constexpr double kPrior = 0.02;

// Rows of one node are sums of blocks that were measured once each, by width, tp and micro-batch: the rows of
// one block together count as one. Of many nodes each row was run by itself.
std::vector<double> weights(const std::vector<MeasuredStep>& rows) {
  std::map<std::tuple<int64_t, int32_t, int64_t>, int> blocks;
  const auto block = [](const MeasuredStep& row) {
    return std::tuple(row.model.C, row.plan.tp, row.plan.micro_batch);
  };
  for (const MeasuredStep& row : rows) ++blocks[block(row)];
  std::vector<double> all;
  for (const MeasuredStep& row : rows) all.push_back(row.multi_node ? 1.0 : 1.0 / blocks[block(row)]);
  const double sum = std::accumulate(all.begin(), all.end(), 0.0);
  for (double& weight : all) weight /= sum;
  return all;
}

double loss(const Cluster& cluster, const std::vector<MeasuredStep>& rows,
            const std::vector<double>& weights) {
  const std::vector<double> predicted = predict(cluster, rows);
  double sum = 0;
  for (size_t i = 0; i < rows.size(); ++i)
    sum += weights[i] * std::abs(std::log(predicted[i] / rows[i].seconds));
  return sum;
}

}  // namespace

std::span<const Constant> fitted_constants() { return kConstants; }

Cluster cluster_for(const Cluster& base, const MeasuredStep& row) {
  Cluster cluster = base;
  cluster.devices.assign(static_cast<size_t>(row.plan.devices()), 0);
  return cluster;
}

std::vector<double> predict(const Cluster& base, const std::vector<MeasuredStep>& rows) {
  std::vector<double> seconds;
  for (const MeasuredStep& row : rows) {
    const auto time = step_time(row.model, row.plan, cluster_for(base, row), row.batch);
    seconds.push_back(time.ok() ? time->step_s : NAN);
  }
  return seconds;
}

Cluster fit(const Cluster& start, const std::vector<MeasuredStep>& rows, int evaluations) {
  constexpr size_t kCount = std::size(kConstants);
  using Point = std::vector<double>;
  const Point origin(kCount, 0);  // logarithms of factors on `start`
  const std::vector<double> weight = weights(rows);
  int used = 0;
  const auto place = [&](const Point& point) {
    Cluster cluster = start;
    for (size_t i = 0; i < kCount; ++i) kConstants[i].scale(cluster, std::exp(point[i]));
    return cluster;
  };
  // Constants that these rows do not determine stay where they were.
  const auto value = [&](const Point& point) {
    ++used;
    double away = 0;
    for (size_t i = 0; i < kCount; ++i) away += kConstants[i].known * point[i] * point[i];
    return loss(place(point), rows, weight) + kPrior * away / kCount;
  };
  struct Vertex {
    Point at;
    double value;
  };
  std::vector<Vertex> simplex;
  const auto restart = [&](const Point& centre, double size) {
    simplex.assign(1, {centre, value(centre)});
    for (size_t i = 0; i < kCount; ++i) {
      Point moved = centre;
      moved[i] += size;
      simplex.push_back({moved, value(moved)});
    }
  };
  const auto descend = [&](double first) {
    used = 0;
    restart(origin, first);
    double size = 0.3;
    while (used < evaluations) {
      std::ranges::stable_sort(simplex, {}, &Vertex::value);
      if (simplex.back().value - simplex.front().value < 1e-5) {
        size *= 0.6;
        if (size < 0.01) break;
        restart(Point(simplex.front().at), size);
        continue;
      }
      Point centre(kCount, 0);
      for (size_t v = 0; v + 1 < simplex.size(); ++v)
        for (size_t i = 0; i < kCount; ++i) centre[i] += simplex[v].at[i] / kCount;
      const auto along = [&](double step) {
        Point point(kCount);
        for (size_t i = 0; i < kCount; ++i) point[i] = centre[i] + step * (simplex.back().at[i] - centre[i]);
        const double at = value(point);
        return Vertex{std::move(point), at};
      };
      Vertex reflected = along(-1);
      if (reflected.value < simplex.front().value) {
        Vertex expanded = along(-2);
        simplex.back() = expanded.value < reflected.value ? std::move(expanded) : std::move(reflected);
      } else if (reflected.value < simplex[kCount - 1].value) {
        simplex.back() = std::move(reflected);
      } else {
        Vertex contracted = along(reflected.value < simplex.back().value ? -0.5 : 0.5);
        if (contracted.value < std::min(reflected.value, simplex.back().value)) {
          simplex.back() = std::move(contracted);
        } else {
          const Point best = simplex.front().at;
          for (size_t v = 1; v < simplex.size(); ++v) {
            for (size_t i = 0; i < kCount; ++i) simplex[v].at[i] = (simplex[v].at[i] + best[i]) / 2;
            simplex[v].value = value(simplex[v].at);
          }
        }
      }
    }
    std::ranges::stable_sort(simplex, {}, &Vertex::value);
    return simplex.front();
  };
  // Hosts that set the pace and hosts that do not are two valleys, and small first steps find one of them.
  const Vertex near = descend(0.3), far = descend(0.6);
  return place(far.value < near.value ? far.at : near.at);
}

}  // namespace tessera::planner_test

#include "measured_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <tuple>

#include "graph/base/text.h"
#include "parallel/analytic/steady_step.h"

namespace tessera::planner_test {

std::optional<std::vector<MeasuredStep>> read_measured_steps(bool multi_node) {
  const char* data = std::getenv("TESSERA_TEST_DATA");
  const std::string_view folder = data != nullptr ? data : TSR_SOURCE_DIR "/../shared/data";
  std::ifstream file(format("{}/planner/vtrain_a100_{}_node.csv", folder, multi_node ? "multi" : "single"));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  std::vector<MeasuredStep> rows;
  while (std::getline(file, line)) {
    std::vector<double> v;
    for (const std::string& cell : split(line, ',')) v.push_back(parse_f64(trim(cell)).value_or(-1));
    if (multi_node && !v.empty()) v.erase(v.begin());  // billions of parameters
    if (v.size() != 11) continue;
    MeasuredStep row;
    row.multi_node = multi_node;
    row.batch = static_cast<int64_t>(v[1]);
    ModelConfig config;
    config.family = "gpt2";
    const auto whole = [&](size_t i) { return static_cast<int64_t>(v[i]); };
    // The rows do not tell the vocabulary. On one node the head of a whole model costs what an odd one does.
    const int64_t vocabulary = multi_node ? 51200 : 50257;
    config.sizes = {{"C", whole(3)}, {"H", whole(4)}, {"L", whole(5)}, {"T", whole(6)}, {"V", vocabulary}};
    const auto shape = transformer_shape(config);
    if (!shape.ok()) continue;
    row.model = *shape;
    const auto plan =
        parse_foreign_plan(format("tp={},dp={},pp={}:1f1b,mb={},recompute={}", whole(7), whole(8), whole(9),
                                  whole(2), multi_node ? "full" : "none"),
                           format("attention=unfused,sp=off,dp_overlap=off,dtype=f16,grad_dtype=f16,"
                                  "one_ring=on,skewed_ranks={}",
                                  multi_node ? "off" : "on"));
    if (!plan.ok()) continue;
    row.plan = *plan;
    row.seconds = v[10] / 1e3;
    rows.push_back(row);
  }
  return rows;
}

Accuracy accuracy(const std::vector<MeasuredStep>& rows, const std::vector<double>& predicted,
                  double within) {
  Accuracy result;
  std::vector<double> errors;
  using Key = std::tuple<int64_t, int64_t, int64_t, int32_t>;
  std::map<Key, std::vector<size_t>> groups;
  for (size_t i = 0; i < rows.size(); ++i) {
    errors.push_back(std::abs(predicted[i] / rows[i].seconds - 1));
    groups[{rows[i].model.C, rows[i].model.L, rows[i].batch, rows[i].plan.devices()}].push_back(i);
  }
  result.rows = static_cast<int>(rows.size());
  for (const double error : errors) result.mape += error / static_cast<double>(errors.size());
  std::ranges::sort(errors);
  if (!errors.empty()) result.median = errors[errors.size() / 2];

  int64_t pairs = 0, right = 0;
  for (const auto& [key, members] : groups) {
    if (members.size() < 2) continue;
    ++result.groups;
    size_t fastest = members[0], best = members[0];
    for (const size_t i : members) {
      if (predicted[i] < predicted[fastest]) fastest = i;
      if (rows[i].seconds < rows[best].seconds) best = i;
      for (const size_t j : members) {
        if (rows[i].seconds >= rows[j].seconds * 0.98) continue;
        ++pairs;
        right += predicted[i] < predicted[j];
      }
    }
    // As steady_step chooses among all plans.
    size_t chosen = fastest;
    for (const size_t i : members) {
      if (predicted[i] > predicted[fastest] * (1 + within)) continue;
      const ForeignPlan &plan = rows[i].plan, &taken = rows[chosen].plan;
      if (!may_stand_for(plan, rows[fastest].plan)) continue;
      if (steadier(plan, taken) || (!steadier(taken, plan) && predicted[i] < predicted[chosen])) chosen = i;
    }
    const double regret = rows[chosen].seconds / rows[best].seconds - 1;
    result.fastest_regret += rows[fastest].seconds / rows[best].seconds - 1;
    result.regret += regret;
    result.worst_regret = std::max(result.worst_regret, regret);
  }
  if (result.groups > 0) result.regret /= result.groups, result.fastest_regret /= result.groups;
  if (pairs > 0) result.pairwise = static_cast<double>(right) / static_cast<double>(pairs);
  return result;
}

}  // namespace tessera::planner_test

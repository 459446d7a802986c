#include "measured_steps.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <tuple>

#include "graph/base/text.h"

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
    BaselineStep& step = row.step;
    const auto whole = [&](size_t i) { return static_cast<int64_t>(v[i]); };
    const auto parts = [&](size_t i) { return static_cast<int32_t>(v[i]); };
    step.batch = whole(1);
    step.model.family = "gpt2";
    // The rows do not tell the vocabulary. On one node the head of a whole model costs what an odd one does.
    const int64_t vocabulary = multi_node ? 51200 : 50257;
    step.model.sizes = {
        {"C", whole(3)}, {"H", whole(4)}, {"L", whole(5)}, {"T", whole(6)}, {"V", vocabulary}};
    step.spec.micro_batch = whole(2);
    step.spec.tp = parts(7), step.spec.dp = parts(8), step.spec.pp = parts(9);
    if (step.spec.pp > 1) step.spec.schedule = ScheduleKind::k1F1B;
    if (multi_node) step.spec.recompute = RecomputeForm::kFull;
    step.software = {.one_ring = true, .late_ranks = !multi_node, .gradients = DType::kF16};
    row.seconds = v[10] / 1e3;
    rows.push_back(std::move(row));
  }
  return rows;
}

std::vector<double> predict(const Cluster& base, const std::vector<MeasuredStep>& rows) {
  using Key = std::tuple<int64_t, int64_t, int32_t, int32_t, bool, int64_t, bool>;
  std::map<Key, Result<std::vector<StepProfile>>> known;
  std::vector<double> seconds;
  for (const MeasuredStep& row : rows) {
    const StrategySpec& spec = row.step.spec;
    Cluster cluster = base;
    cluster.devices.assign(static_cast<size_t>(spec.devices()), 0);
    const Key key(row.width(), spec.micro_batch, spec.tp, spec.dp, spec.pp > 1,
                  std::min<int64_t>(row.step.micro_batches(), 3), row.multi_node);
    auto at = known.find(key);
    if (at == known.end()) at = known.emplace(key, profile_baseline(row.step, cluster)).first;
    const Result<double> time =
        at->second.ok() ? composed_seconds(row.step, *at->second, cluster) : at->second.status();
    seconds.push_back(time.ok() ? *time : NAN);
  }
  return seconds;
}

Accuracy accuracy(const std::vector<MeasuredStep>& rows, const std::vector<double>& predicted) {
  constexpr double kWithin = 0.02;
  Accuracy result;
  std::vector<double> errors;
  using Key = std::tuple<int64_t, int64_t, int64_t, int32_t>;
  std::map<Key, std::vector<size_t>> groups;
  const auto spec = [&](size_t i) -> const StrategySpec& { return rows[i].step.spec; };
  for (size_t i = 0; i < rows.size(); ++i) {
    errors.push_back(std::abs(predicted[i] / rows[i].seconds - 1));
    groups[{rows[i].width(), rows[i].step.model.sizes.at("L"), rows[i].step.batch, spec(i).devices()}]
        .push_back(i);
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
    const auto may_stand = [&](size_t i) {
      return predicted[i] <= predicted[fastest] * (1 + kWithin) && spec(i).pp == spec(fastest).pp &&
             spec(fastest).tp % spec(i).tp == 0 && spec(fastest).micro_batch % spec(i).micro_batch == 0;
    };
    const auto order = [&](size_t i) { return std::tuple(spec(i).tp, spec(i).micro_batch, predicted[i]); };
    size_t chosen = fastest;
    for (const size_t i : members)
      if (may_stand(i) && order(i) < order(chosen)) chosen = i;
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

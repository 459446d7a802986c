#include "parallel/pricing/profile_prices.h"

#include <algorithm>
#include <vector>

#include "graph/base/text.h"

namespace tessera {

namespace {

struct Place {
  size_t below = 0;   // lower mark
  double share = 0;   // fraction of the way to the next
  double beyond = 1;  // factor beyond the last mark
};

Place find_place(const std::vector<double>& marks, double value) {
  if (value <= marks.front()) return {};
  if (value >= marks.back()) return {marks.size() - 1, 0, value / marks.back()};
  const auto above = static_cast<size_t>(std::ranges::upper_bound(marks, value) - marks.begin());
  const double low = marks[above - 1];
  return {above - 1, (value - low) / (marks[above] - low), 1};
}

// Multilinear between marks: a kernel's time is a sum of parts, each
// proportional to some of its factors (launch to none, reading an operand
// to two, compute to all). On logarithms it would be up to a third too low.
double interpolate(const PriceTable& table, const std::vector<double>& seconds,
                   const std::vector<Place>& places) {
  double sum = 0, beyond = 1;
  for (const Place& place : places) beyond *= place.beyond;
  for (size_t corner = 0; corner < (size_t{1} << places.size()); ++corner) {
    double weight = 1;
    size_t index = 0;
    for (size_t axis = 0; axis < places.size(); ++axis) {
      const bool upper = (corner >> axis & 1) != 0;
      weight *= upper ? places[axis].share : 1 - places[axis].share;
      index = index * table.marks[axis].size() + places[axis].below + (upper ? 1 : 0);
      if (weight == 0) break;
    }
    if (weight > 0) sum += weight * seconds[index];
  }
  return sum * beyond;
}

double local_extent(const FactorView& factor) {
  int64_t extent = 0;
  for (int32_t i = 0; i < factor.range_count; ++i) extent += factor.end[i] - factor.begin[i];
  return static_cast<double>(extent);
}

// A node's position on a table's axis.
double measure(const PriceTable& table, size_t axis, const OpDef& op, const OpView& view) {
  const std::string& name = table.axes[axis];
  if (name == "bytes") {
    const OpCost cost = op.cost(view);
    return cost.bytes_read + cost.bytes_written;
  }
  const auto named = [&](char factor) {
    return std::ranges::any_of(table.axes, [&](const std::string& other) {
      return other != "bytes" && other.find(factor) != std::string::npos;
    });
  };
  double extent = 1;
  for (const FactorView& factor : view.factors)
    if (name == "*" ? !named(factor.name) : name.find(factor.name) != std::string::npos)
      extent *= local_extent(factor);
  return extent;
}

bool has_form(const PriceTable& table, std::span<const Attr> attrs) {
  if (table.form.empty()) return true;
  const size_t equals = table.form.find('=');
  const auto found = std::ranges::find(attrs, table.form.substr(0, equals), &Attr::name);
  return found != attrs.end() && to_text(found->value) == table.form.substr(equals + 1);
}

// The op's table in its form and element type; else of another type, scaled by bytes.
const PriceTable* find_table(const DeviceProfile& profile, std::string_view op, DType dtype,
                             std::span<const Attr> attrs) {
  const PriceTable* other = nullptr;
  for (const PriceTable& table : profile.kernels) {
    if (table.op != op || !has_form(table, attrs)) continue;
    if (table.dtype == dtype) return &table;
    if (other == nullptr || table.dtype == DType::kF32) other = &table;
  }
  return other;
}

Seconds look_up(const PriceTable& table, const OpDef& op, const OpView& view) {
  std::vector<Place> places;
  for (size_t axis = 0; axis < table.axes.size(); ++axis)
    places.push_back(find_place(table.marks[axis], measure(table, axis, op, view)));
  const double alone = interpolate(table, table.seconds, places);
  return {alone, table.shared_seconds.empty() ? alone : interpolate(table, table.shared_seconds, places)};
}

// Below the first mark of a table by bytes: proportional, but at least the time of any op with those bytes.
Seconds fall_below(const PriceTable& table, Seconds at_first, const PriceTable* any, const OpDef& op,
                   const OpView& view) {
  if (any == nullptr || table.axes != std::vector<std::string>{"bytes"}) return at_first;
  const double share = measure(table, 0, op, view) / table.marks[0].front();
  if (share >= 1) return at_first;
  const Seconds least = look_up(*any, op, view);
  return {std::min(at_first.alone_s, std::max(share * at_first.alone_s, least.alone_s)),
          std::min(at_first.shared_s, std::max(share * at_first.shared_s, least.shared_s))};
}

// Attention is measured without a window: scales by the visible share of pairs.
double share_in_window(const OpDef& op, const OpView& view) {
  const auto window = std::ranges::find(view.attrs, "window", &Attr::name);
  if (window == view.attrs.end() || window->value == AttrValue(int64_t{0})) return 1;
  std::vector<Attr> attrs(view.attrs.begin(), view.attrs.end());
  attrs[static_cast<size_t>(window - view.attrs.begin())].value = int64_t{0};
  const double whole = op.cost({attrs, view.inputs, view.outputs, view.factors}).flops;
  return whole > 0 ? op.cost(view).flops / whole : 1;
}

// The fastest measured matmul, also in TF32 if `attrs`
// allow it: a bound for compute-heavy ops without a table.
double peak_flops(const DeviceProfile& profile, std::span<const Attr> attrs) {
  double peak = 0;
  for (const PriceTable& table : profile.kernels) {
    const OpDef* op = find_op(table.op);
    if (op == nullptr || op->weight.use != WeightUse::kProduct || table.dtype != DType::kF32) continue;
    if (table.form.starts_with("allow_tf32=") && !has_form(table, attrs)) continue;
    double flops = 2;
    for (const std::vector<double>& marks : table.marks) flops *= marks.back();
    peak = std::max(peak, flops / table.seconds.back());
  }
  return peak;
}

}  // namespace

double at(const PriceCurve& curve, double bytes) {
  if (curve.bytes.empty()) return 0;
  const Place place = find_place(curve.bytes, bytes);
  const double low = curve.seconds[place.below];
  if (place.share == 0) return low * place.beyond;
  return low + place.share * (curve.seconds[place.below + 1] - low);
}

std::optional<Seconds> kernel_seconds(const DeviceProfile& profile, const OpDef& op, const OpView& view) {
  if (op.cost == nullptr || view.outputs.empty()) return std::nullopt;
  // Unrounded sums have their operands' type otherwise.
  const auto wide = std::ranges::find(view.attrs, "wide", &Attr::name);
  const bool is_wide = wide != view.attrs.end() && wide->value == AttrValue(int64_t{1});
  const DType dtype = (is_wide ? view.inputs : view.outputs)[0].dtype;
  const PriceTable* any = find_table(profile, "", dtype, {});
  const PriceTable* table = find_table(profile, op.name, dtype, view.attrs);
  if (table == nullptr && !op.former_name.empty())
    table = find_table(profile, op.former_name, dtype, view.attrs);
  if (table == nullptr && !op.priced_as.empty()) table = find_table(profile, op.priced_as, dtype, view.attrs);
  if (table != nullptr) {
    const Seconds seconds = fall_below(*table, look_up(*table, op, view), any, op, view);
    const double share = share_in_window(op, view);
    return Seconds{share * seconds.alone_s, share * seconds.shared_s};
  }
  if (any == nullptr) return std::nullopt;
  Seconds seconds = look_up(*any, op, view);
  if (const double peak = peak_flops(profile, view.attrs); peak > 0) {
    const double compute_s = op.cost(view).flops / peak;
    seconds.alone_s = std::max(seconds.alone_s, compute_s);
    seconds.shared_s = std::max(seconds.shared_s, compute_s * std::max(1, profile.cores));
  }
  return seconds;
}

std::optional<double> collective_seconds(const DeviceProfile& profile, CollectiveKind kind, int32_t members,
                                         double bytes) {
  const CollectivePrice *below = nullptr, *above = nullptr;
  for (const CollectivePrice& price : profile.collectives) {
    if (price.kind != kind) continue;
    if (price.members <= members) below = &price;
    if (price.members >= members && above == nullptr) above = &price;
  }
  if (below == nullptr && above == nullptr) return std::nullopt;
  if (below == nullptr) return at(above->curve, bytes);
  if (above == nullptr)  // cost per member, from the smallest to the largest group
    return at(below->curve, bytes) * members / below->members;
  if (above == below) return at(below->curve, bytes);
  const double share = static_cast<double>(members - below->members) / (above->members - below->members);
  return (1 - share) * at(below->curve, bytes) + share * at(above->curve, bytes);
}

std::optional<double> copy_seconds(const DeviceProfile& profile, Tier from, Tier to, double bytes) {
  for (const CopyPrice& price : profile.copies)
    if (price.from == from && price.to == to) return at(price.curve, bytes);
  return std::nullopt;
}

}  // namespace tessera

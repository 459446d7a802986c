#include "graph/sharding_spec.h"

#include <algorithm>

#include "graph/base/text.h"

namespace tessera {

bool ShardingSpec::uses(AxisId axis) const {
  return std::ranges::find(partial, axis) != partial.end() ||
         std::ranges::any_of(dims, [&](const DimSharding& dim) {
           return std::ranges::find(dim.axes, axis) != dim.axes.end();
         });
}

Range split_range(Range whole, int64_t unit, int32_t parts, int32_t part, int32_t first) {
  TSR_CHECK(unit >= 1 && parts >= 1 && part >= 0 && part < parts && first >= 0 && first < parts,
            "not a part of a split");
  const int64_t units = whole.size() / unit;
  const int64_t each = units / parts, larger = units % parts;
  // The larger parts before part p: of [first, first + larger), which may wrap around to part 0.
  const int64_t wrapped = std::max<int64_t>(0, first + larger - parts);
  const auto start = [&](int64_t p) {
    const int64_t before = std::min(p, wrapped) + std::clamp<int64_t>(p - first, 0, larger - wrapped);
    return whole.begin + unit * (p * each + before);
  };
  // The last part takes a remainder below a unit (validate refuses it), so that the parts always tile.
  return {start(part), part + 1 == parts ? whole.end : start(part + 1)};
}

namespace {
// Returns DimSharding::first as a part of each axis.
std::vector<int32_t> first_parts(const DimSharding& dim, const DeviceMesh& mesh) {
  std::vector<int32_t> firsts(dim.axes.size());
  int32_t rest = dim.first;
  for (size_t i = dim.axes.size(); i-- > 0;) {
    firsts[i] = rest % mesh.axis_size(dim.axes[i]);
    rest /= mesh.axis_size(dim.axes[i]);
  }
  return firsts;
}
}  // namespace

Range local_range(int64_t extent, const DimSharding& dim, const DeviceMesh& mesh,
                  std::span<const int32_t> coordinates) {
  Range range{0, extent};
  const std::vector<int32_t> firsts = first_parts(dim, mesh);
  for (size_t i = 0; i < dim.axes.size(); ++i)
    range = split_range(range, dim.unit, mesh.axis_size(dim.axes[i]), coordinates[dim.axes[i]], firsts[i]);
  return range;
}

std::vector<Range> split_ranges(int64_t extent, const DimSharding& dim, const DeviceMesh& mesh) {
  std::vector<Range> ranges = {{0, extent}};
  const std::vector<int32_t> firsts = first_parts(dim, mesh);
  for (size_t i = 0; i < dim.axes.size(); ++i) {
    const int32_t parts = mesh.axis_size(dim.axes[i]);
    std::vector<Range> next;
    for (const Range& range : ranges)
      for (int32_t part = 0; part < parts; ++part)
        next.push_back(split_range(range, dim.unit, parts, part, firsts[i]));
    ranges = std::move(next);
  }
  return ranges;
}

Box local_box(const Shape& global, const ShardingSpec& spec, const DeviceMesh& mesh,
              std::span<const int32_t> coordinates) {
  TSR_CHECK(static_cast<int>(spec.dims.size()) == global.rank(), "spec and shape differ in rank");
  Box box;
  for (int dim = 0; dim < global.rank(); ++dim)
    box.push_back(local_range(global[dim], spec.dims[static_cast<size_t>(dim)], mesh, coordinates));
  return box;
}

Shape local_shape(const Shape& global, const ShardingSpec& spec, const DeviceMesh& mesh,
                  std::span<const int32_t> coordinates) {
  Shape local;
  for (const Range& range : local_box(global, spec, mesh, coordinates)) local.push_back(range.size());
  return local;
}

Status validate(const ShardingSpec& spec, const Shape& global, const DeviceMesh& mesh) {
  if (static_cast<int>(spec.dims.size()) != global.rank())
    return Status(StatusCode::kInvalidArgument, format("spec has {} dims, the tensor [{}] has {}",
                                                       spec.dims.size(), global, global.rank()));
  std::vector<bool> used(mesh.axes.size());
  const auto use = [&](AxisId axis) -> Status {
    if (axis >= mesh.axes.size())
      return Status(StatusCode::kInvalidArgument, format("spec names axis {}, the mesh '{}' has {}", axis,
                                                         to_text(mesh), mesh.axes.size()));
    if (used[axis])
      return Status(StatusCode::kInvalidArgument, format("spec uses axis '{}' twice", mesh.axes[axis].name));
    used[axis] = true;
    return {};
  };
  for (int dim = 0; dim < global.rank(); ++dim) {
    const DimSharding& sharding = spec.dims[static_cast<size_t>(dim)];
    for (AxisId axis : sharding.axes) TSR_RETURN_IF_ERROR(use(axis));
    if (sharding.unit < 1 || (sharding.axes.empty() && sharding.unit != 1))
      return Status(StatusCode::kInvalidArgument,
                    format("dim {}: unit {} where a count >= 1 is wanted (1 when no axis splits the dim)",
                           dim, sharding.unit));
    int64_t parts = 1;
    for (AxisId axis : sharding.axes) parts *= mesh.axis_size(axis);
    if (sharding.first < 0 || sharding.first >= parts)
      return Status(StatusCode::kInvalidArgument,
                    format("dim {}: larger parts begin at part {} of {}", dim, sharding.first, parts));
    if (!is_symbol(global[dim]) && global[dim] % sharding.unit != 0)
      return Status(StatusCode::kInvalidArgument,
                    format("dim {}: unit {} does not divide extent {}", dim, sharding.unit, global[dim]));
  }
  for (AxisId axis : spec.partial) TSR_RETURN_IF_ERROR(use(axis));
  if (!std::ranges::is_sorted(spec.partial))
    return Status(StatusCode::kInvalidArgument, "partial axes are not in mesh order");
  return {};
}

namespace {
std::string axis_names(std::span<const AxisId> axes, const DeviceMesh& mesh) {
  std::vector<std::string> names;
  for (AxisId axis : axes)
    names.push_back(axis < mesh.axes.size() ? mesh.axes[axis].name : format("?{}", axis));
  return join(names, ", ");
}
}  // namespace

std::string to_text(const ShardingSpec& spec, const DeviceMesh& mesh) {
  std::vector<std::string> dims;
  for (const DimSharding& dim : spec.dims)
    dims.push_back("[" + axis_names(dim.axes, mesh) + (dim.unit == 1 ? "" : format(" unit {}", dim.unit)) +
                   (dim.first == 0 ? "" : format(" first {}", dim.first)) + "]");
  std::string text = "{" + join(dims, ", ") + "}";
  if (!spec.partial.empty())
    text += format(" partial({}: {})", spec.reduce == ReduceKind::kMax ? "max" : "sum",
                   axis_names(spec.partial, mesh));
  return text;
}

namespace {

// One reader of "{[dp], [sp, tp unit 4]} partial(sum: ep)".
class SpecReader {
 public:
  SpecReader(std::string_view text, const DeviceMesh& mesh) : text_(text), rest_(trim(text)), mesh_(mesh) {}

  Result<ShardingSpec> read() {
    ShardingSpec spec;
    TSR_RETURN_IF_ERROR(expect("{"));
    while (!take("}")) {
      if (!spec.dims.empty()) TSR_RETURN_IF_ERROR(expect(","));
      TSR_RETURN_IF_ERROR(expect("["));
      const size_t close = rest_.find(']');
      if (close == std::string_view::npos) return wrong("a closing ']'");
      std::string_view inside = rest_.substr(0, close);
      rest_ = trim(rest_.substr(close + 1));
      DimSharding dim;
      if (const size_t first = inside.find(" first "); first != std::string_view::npos) {
        const auto value = parse_i64(trim(inside.substr(first + 7)));
        if (!value || *value < 1 || *value > INT32_MAX) return wrong("a first part >= 1");
        dim.first = static_cast<int32_t>(*value);
        inside = inside.substr(0, first);
      }
      if (const size_t unit = inside.find(" unit "); unit != std::string_view::npos) {
        const auto value = parse_i64(trim(inside.substr(unit + 6)));
        if (!value || *value < 1) return wrong("a unit >= 1");
        dim.unit = *value;
        inside = inside.substr(0, unit);
      }
      TSR_RETURN_IF_ERROR(read_axes(inside, dim.axes));
      spec.dims.push_back(std::move(dim));
    }
    if (rest_.empty()) return spec;
    TSR_RETURN_IF_ERROR(expect("partial"));
    TSR_RETURN_IF_ERROR(expect("("));
    if (take("max")) {
      spec.reduce = ReduceKind::kMax;
    } else {
      TSR_RETURN_IF_ERROR(expect("sum"));
    }
    TSR_RETURN_IF_ERROR(expect(":"));
    const size_t close = rest_.find(')');
    if (close == std::string_view::npos) return wrong("a closing ')'");
    TSR_RETURN_IF_ERROR(read_axes(rest_.substr(0, close), spec.partial));
    std::ranges::sort(spec.partial);
    rest_ = trim(rest_.substr(close + 1));
    if (!rest_.empty()) return wrong("the end");
    return spec;
  }

 private:
  Status wrong(std::string_view wanted) const {
    return Status(
        StatusCode::kInvalidArgument,
        format("sharding spec '{}': wanted {} at '{}'; an example: {[dp], [sp, tp]} partial(sum: ep)", text_,
               wanted, rest_, "{}"));
  }
  bool take(std::string_view token) {
    if (!rest_.starts_with(token)) return false;
    rest_ = trim(rest_.substr(token.size()));
    return true;
  }
  Status expect(std::string_view token) {
    if (take(token)) return {};
    return wrong(format("'{}'", token));
  }
  Status read_axes(std::string_view list, std::vector<AxisId>& axes) const {
    for (const std::string& part : split(trim(list), ',')) {
      const auto axis = mesh_.find_axis(trim(part));
      if (!axis)
        return Status(
            StatusCode::kInvalidArgument,
            format("sharding spec '{}': the mesh '{}' has no axis '{}'", text_, to_text(mesh_), trim(part)));
      axes.push_back(*axis);
    }
    return {};
  }

  std::string_view text_, rest_;
  const DeviceMesh& mesh_;
};

}  // namespace

Result<ShardingSpec> parse_spec(std::string_view text, const DeviceMesh& mesh) {
  return SpecReader(text, mesh).read();
}

}  // namespace tessera

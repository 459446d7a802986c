// ModuleReader finds a module's tensors by its scheme and checks them; then types are chosen, of experts together.
#include "serialize/import/module_weights.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "graph/base/cancellation.h"
#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "serialize/import/code_matrix.h"
#include "serialize/import/stored_numbers.h"

namespace tessera {
namespace {

using Layout = WeightScheme::Layout;

constexpr std::string_view kWeight = ".weight", kScale = ".weight_scale", kZeros = ".weight_zero_point", kShape = ".weight_shape",
                           kGroups = ".weight_g_idx", kInputs = ".pre_quant_scale";
// Tensors of a quantised weight beside .weight.
constexpr std::string_view kParts[] = {".weight_packed",  kScale, kZeros, kShape, kGroups, ".weight_global_scale",
                                       ".weight_scale_2", kInputs};

Status corrupt(std::string message) { return Status(StatusCode::kCorrupt, std::move(message)); }
Status unsupported(std::string message) { return Status(StatusCode::kUnsupported, std::move(message)); }

// ReadWeight: a module's weight with its possible types.
struct ReadWeight {
  std::string stem;
  CodeMatrix matrix;
  std::optional<DType> blocks;
  std::vector<std::string> replaced;
};

class ModuleReader {
 public:
  ModuleReader(const ForeignFile& file, const std::string& stem, const WeightScheme& scheme)
      : file_(file), stem_(stem), scheme_(scheme) {
    weight_.stem = stem;
  }

  Result<ReadWeight> read() && {
    if (file_.tensors.contains(stem_ + std::string(kInputs)))
      return unsupported(
          format("tensor '{}.pre_quant_scale' scales the inputs of '{}'; save the model with these scales folded into "
                 "its norms",
                 quote(stem_), quote(stem_)));
    TSR_RETURN_IF_ERROR(read_codes());
    TSR_RETURN_IF_ERROR(read_scales());
    TSR_RETURN_IF_ERROR(read_zeros());
    TSR_RETURN_IF_ERROR(read_groups());
    TSR_RETURN_IF_ERROR(read_factor());
    TSR_ASSIGN_OR_RETURN(weight_.blocks, weight_.matrix.block_type(stem_ + std::string(kScale)));
    return std::move(weight_);
  }

 private:
  const ForeignTensor* find(std::string_view part) {
    const auto found = file_.tensors.find(stem_ + std::string(part));
    if (found == file_.tensors.end()) return nullptr;
    weight_.replaced.push_back(found->first);
    return &found->second;
  }

  Result<const ForeignTensor*> need(std::string_view part) {
    if (const ForeignTensor* const found = find(part)) return found;
    return corrupt(format("tensor '{}{}' is missing", quote(stem_), part));
  }

  Status wrong(std::string_view part, const ForeignTensor& tensor, const std::string& wanted) const {
    return corrupt(format("tensor '{}{}' is {} [{}], wanted {}", quote(stem_), part, tensor.type, tensor.shape, wanted));
  }

  Status read_codes() {
    CodeMatrix& m = weight_.matrix;
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const codes, need(scheme_.codes));
    using Codes = CodeMatrix::Codes;
    std::string_view type;
    switch (scheme_.layout) {
      case Layout::kPackedIntegers: type = "i32", m.codes = Codes::kPacked; break;
      case Layout::kIntegers: type = "i8", m.codes = Codes::kI8; break;
      case Layout::kFp8:
      case Layout::kMxfp8: type = "f8_e4m3", m.codes = Codes::kE4m3; break;
      case Layout::kNvfp4:
      case Layout::kMxfp4: type = "u8", m.codes = Codes::kE2m1; break;
      case Layout::kPlain: break;
    }
    if (codes->type != type || codes->shape.rank() != 2 || codes->shape.elements() == 0)
      return wrong(scheme_.codes, *codes, format("a matrix of {}", type));
    m.source = file_.source;
    m.codes_at = codes->offset;
    m.N = codes->shape[0];
    m.row_bytes = codes->bytes / m.N;
    m.K = codes->shape[1] * (m.codes == Codes::kE2m1 ? 2 : 1);
    m.bits = m.codes == Codes::kPacked ? scheme_.bits : 8;
    return m.codes == Codes::kPacked ? read_shape(*codes) : Status();
  }

  // The extents of packed codes, whose last word may be filled up.
  Status read_shape(const ForeignTensor& codes) {
    CodeMatrix& m = weight_.matrix;
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const shape, need(kShape));
    if ((shape->type != "i64" && shape->type != "i32") || shape->shape.elements() != 2)
      return wrong(kShape, *shape, "2 numbers of i64");
    int64_t wide[2] = {};
    int32_t narrow[2] = {};
    const bool is_wide = shape->type == "i64";
    const std::span<std::byte> all = is_wide ? std::span<std::byte>(std::as_writable_bytes(std::span(wide)))
                                             : std::span<std::byte>(std::as_writable_bytes(std::span(narrow)));
    TSR_RETURN_IF_ERROR(file_.source->read_at(shape->offset, all));
    const int64_t N = is_wide ? wide[0] : narrow[0], K = is_wide ? wide[1] : narrow[1];
    const int64_t words = codes.shape[1], most = words * 32 / m.bits;
    if (N != m.N || K < 1 || K > most || (K * m.bits + 31) / 32 != words)
      return corrupt(
          format("tensor '{}.weight_shape' is [{}, {}], wanted [{}, K] with K codes of {} bits in {} words, as '{}{}' has "
                 "them",
                 quote(stem_), N, K, m.N, m.bits, words, quote(stem_), scheme_.codes));
    m.K = K;
    return {};
  }

  Status read_scales() {
    CodeMatrix& m = weight_.matrix;
    m.block_rows = scheme_.block_rows == 0 ? m.N : scheme_.block_rows;
    m.block_columns = scheme_.block_columns == 0 ? m.K : scheme_.block_columns;
    const bool is_mx = scheme_.layout == Layout::kMxfp4 || scheme_.layout == Layout::kMxfp8;
    m.scales = is_mx                              ? CodeMatrix::Scales::kE8m0
               : scheme_.layout == Layout::kNvfp4 ? CodeMatrix::Scales::kE4m3
                                                  : CodeMatrix::Scales::kFloat;
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const scales, need(kScale));
    return m.set_scales(*scales, stem_ + std::string(kScale));
  }

  Status read_zeros() {
    CodeMatrix& m = weight_.matrix;
    if (!scheme_.has_zeros) {
      if (const ForeignTensor* const zeros = find(kZeros))
        return wrong(kZeros, *zeros, "none: the weights of its group are symmetric");
      return {};
    }
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const zeros, need(kZeros));
    const bool is_packed = scheme_.layout == Layout::kPackedIntegers && scheme_.block_rows == 1;
    const int64_t rows = is_packed ? (m.N * m.bits + 31) / 32 : m.grid_rows();
    if (zeros->type != (is_packed ? "i32" : "i8") || zeros->shape.elements() != rows * m.grid_columns() ||
        (is_packed && zeros->shape != Shape{rows, m.grid_columns()}))
      return wrong(kZeros, *zeros, format("{} [{}, {}]", is_packed ? "i32" : "i8", rows, m.grid_columns()));
    m.zeros = is_packed ? CodeMatrix::Zeros::kPacked : CodeMatrix::Zeros::kI8;
    m.zeros_at = zeros->offset;
    return {};
  }

  // Groups of columns in the order of activations; -1 everywhere: in order, as without the tensor.
  Status read_groups() {
    CodeMatrix& m = weight_.matrix;
    const ForeignTensor* const order = find(kGroups);
    if (order == nullptr) return {};
    if (order->shape != Shape{m.K}) return wrong(kGroups, *order, format("i32 [{}]", m.K));
    TSR_ASSIGN_OR_RETURN(const std::vector<int32_t> groups,
                         read_stored_integers(*file_.source, *order, stem_ + std::string(kGroups)));
    if (std::ranges::all_of(groups, [](int32_t group) { return group == -1; })) return {};
    const auto bad = std::ranges::find_if(groups, [&](int32_t group) { return group < 0 || group >= m.grid_columns(); });
    if (bad != groups.end())
      return corrupt(format("tensor '{}.weight_g_idx' has {} at {}, there are {} groups", quote(stem_), *bad,
                            bad - groups.begin(), m.grid_columns()));
    m.groups_at = order->offset;
    return {};
  }

  Status read_factor() {
    if (scheme_.factor.empty()) return {};
    CodeMatrix& m = weight_.matrix;
    TSR_ASSIGN_OR_RETURN(const ForeignTensor* const factor, need(scheme_.factor));
    if (factor->shape.elements() != 1) return wrong(scheme_.factor, *factor, "one number");
    TSR_ASSIGN_OR_RETURN(const std::vector<float> value,
                         read_stored_numbers(*file_.source, *factor, stem_ + std::string(scheme_.factor)));
    const float product = scheme_.divides ? 1 / value[0] : value[0];
    if (!std::isfinite(product) || product == 0)
      return corrupt(format("tensor '{}{}' is {}, wanted a number whose {} is finite and not 0", quote(stem_), scheme_.factor,
                            value[0], scheme_.divides ? "inverse" : "value"));
    m.factor = value[0];
    m.divides = scheme_.divides;
    return {};
  }

  const ForeignFile& file_;
  const std::string& stem_;
  const WeightScheme& scheme_;
  ReadWeight weight_;
};

// Modules: those of a file, with those that have quantised tensors.
struct Modules {
  std::set<std::string> all, quantised;
};

Modules modules_of(const ForeignTensors& tensors) {
  Modules found;
  const auto stem = [](const std::string& name, std::string_view part) { return name.substr(0, name.size() - part.size()); };
  for (const auto& [name, tensor] : tensors) {
    if (name.ends_with(kWeight)) found.all.insert(stem(name, kWeight));
    for (const std::string_view part : kParts)
      if (name.ends_with(part)) {
        found.all.insert(stem(name, part));
        found.quantised.insert(stem(name, part));
      }
  }
  return found;
}

// Claims: the group of each quantised module.
class Claims {
 public:
  explicit Claims(const ModuleSchemes& schemes) : schemes_(schemes) {}

  Status claim(const ForeignTensors& tensors) {
    for (size_t i = 0; i < schemes_.groups.size(); ++i)
      for (const ModulePattern& target : schemes_.groups[i].targets) TSR_RETURN_IF_ERROR(targets_.add(target, i));
    for (const ModulePattern& pattern : schemes_.ignored) TSR_RETURN_IF_ERROR(ignored_.add(pattern, 0));
    const Modules modules = modules_of(tensors);
    std::vector<bool> has_weight(schemes_.groups.size());
    for (const std::string& module : modules.all) {
      TSR_ASSIGN_OR_RETURN(const std::optional<size_t> group, targets_.find(module));
      TSR_ASSIGN_OR_RETURN(const std::optional<size_t> ignored, ignored_.find(module));
      const bool is_quantised = modules.quantised.contains(module);
      if (group && !ignored) {
        has_weight[*group] = has_weight[*group] || is_quantised || schemes_.groups[*group].scheme.layout == Layout::kPlain;
        TSR_RETURN_IF_ERROR(check_named(module, *group, is_quantised));
      }
      if (!is_quantised) continue;
      if (ignored)
        return not_claimed(tensors, module, format("'{}' of the modules left as they are matches it", quote(ignored_.matched())));
      if (!group) return not_claimed(tensors, module, "no group of the configuration has it as a target");
      groups.emplace(module, *group);
    }
    if (!schemes_.wants_matches) return {};
    if (const auto target = targets_.unmatched())
      return unsupported(format("config_groups: the target '{}' matches no module of the file", quote(*target)));
    for (size_t i = 0; i < has_weight.size(); ++i)
      if (!has_weight[i])
        return unsupported(
            format("{}: none of the modules that its targets match is quantised in the file", schemes_.groups[i].name));
    return {};
  }

  std::map<std::string, size_t> groups;

 private:
  // A target that is a module's name wants its tensors; classes and patterns also match modules that are not quantised.
  Status check_named(const std::string& module, size_t group, bool is_quantised) const {
    const ModuleGroup& owner = schemes_.groups[group];
    if (is_quantised || owner.scheme.layout == Layout::kPlain || !schemes_.wants_matches || targets_.matched() != module)
      return {};
    return corrupt(format("tensor '{}{}' is missing: '{}' is a target of {}", quote(module),
                          owner.scheme.codes == kWeight ? kScale : owner.scheme.codes, quote(module), owner.name));
  }

  static Status not_claimed(const ForeignTensors& tensors, const std::string& module, const std::string& why) {
    std::string part;
    for (const std::string_view each : kParts)
      if (part.empty() && tensors.contains(module + std::string(each))) part = each;
    return unsupported(
        format("tensor '{}{}' is there, but module '{}' is not to be quantised: {}", quote(module), part, quote(module), why));
  }

  const ModuleSchemes& schemes_;
  ModulePatterns targets_, ignored_;
};

// The weight's name with '#' in place of the number of an expert; "" for others.
std::string experts_of(const std::string& name) {
  constexpr std::string_view kExperts = "experts.";
  const size_t at = name.find(kExperts);
  if (at == name.npos) return {};
  const size_t begin = at + kExperts.size(), end = std::min(name.find_first_not_of("0123456789", begin), name.size());
  return end == begin ? std::string() : name.substr(0, begin) + "#" + name.substr(end);
}

// Takes blocks from experts whose siblings have another type.
void unify_experts(const ForeignTensors& tensors, std::vector<ReadWeight>& weights) {
  std::map<std::string, std::set<std::optional<DType>>> types;
  for (const ReadWeight& weight : weights)
    if (std::string key = experts_of(weight.stem); !key.empty()) types[key].insert(weight.blocks);
  if (types.empty()) return;
  std::set<std::string> quantised;
  for (const ReadWeight& weight : weights) quantised.insert(weight.stem);
  for (const auto& [name, tensor] : tensors) {
    if (!name.ends_with(kWeight)) continue;
    const std::string stem = name.substr(0, name.size() - kWeight.size());
    if (quantised.contains(stem)) continue;
    if (const auto found = types.find(experts_of(stem)); found != types.end()) found->second.insert(std::nullopt);
  }
  for (ReadWeight& weight : weights)
    if (const auto found = types.find(experts_of(weight.stem)); found != types.end() && found->second.size() > 1)
      weight.blocks = std::nullopt;
}

DecodedWeight decoded_weight(ReadWeight weight) {
  const CodeMatrix& m = weight.matrix;
  const Shape shape{m.N, m.K};
  DecodedWeight made;
  made.name = weight.stem + std::string(kWeight);
  made.type = {weight.blocks.value_or(m.float_type()), shape};
  made.decoded = m.decoded(made.type.dtype);
  made.replaced = std::move(weight.replaced);
  made.product_scale = weight.blocks ? (m.divides ? 1 / m.factor : m.factor) : 1;
  if (made.product_scale != 1) {
    made.scaled_type = m.float_type();
    made.scaled = m.decoded(made.scaled_type);
  }
  return made;
}

}  // namespace

Result<std::vector<DecodedWeight>> module_weights(const ModuleSchemes& schemes, ForeignFile& file) {
  Claims claims(schemes);
  TSR_RETURN_IF_ERROR(claims.claim(file.tensors));
  std::vector<ReadWeight> weights;
  for (const auto& [module, group] : claims.groups) {
    cancellation_point();
    const WeightScheme& scheme = schemes.groups[group].scheme;
    if (scheme.layout == Layout::kPlain) {
      for (const std::string_view part : kParts) file.tensors.erase(module + std::string(part));
      continue;
    }
    Result<ReadWeight> weight = ModuleReader(file, module, scheme).read();
    if (!weight.ok()) return weight.status().with_context(schemes.groups[group].name);
    weights.push_back(std::move(*weight));
  }
  unify_experts(file.tensors, weights);
  std::vector<DecodedWeight> decoded;
  for (ReadWeight& weight : weights) decoded.push_back(decoded_weight(std::move(weight)));
  return decoded;
}

}  // namespace tessera

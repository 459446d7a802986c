#include "text/answer/argument_schema.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/grammar/regex_search.h"
#include "text/grammar/schema_keywords.h"
#include "text/grammar/schema_pointer.h"

namespace tessera::answer {
namespace {

constexpr int kMostSchemaDepth = 64;

const Json* member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() ? nullptr : &*found;
}

const Json* resolve(const Json& root, const Json& reference) {
  if (!reference.is_string()) return nullptr;
  std::string pointer;
  const Result<const Json*> found = grammar::find_schema(root, reference.get<std::string>(), "#", pointer);
  return found.ok() ? *found : nullptr;
}

const std::string& text_of(const Json& value) { return value.get_ref<const std::string&>(); }

int64_t count_characters(std::string_view text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

bool is_multiple(const Json& value, const Json& step) {
  if (!(step.get<double>() > 0)) return true;
  if (value.is_number_integer() && !value.is_number_unsigned() && step.is_number_integer())
    return value.get<int64_t>() % step.get<int64_t>() == 0;
  if (value.is_number_unsigned() && step.is_number_unsigned())
    return value.get<uint64_t>() % step.get<uint64_t>() == 0;
  const double quotient = value.get<double>() / step.get<double>();
  return std::isfinite(quotient) && quotient == std::trunc(quotient);
}

// Keywords of texts and numbers apply to these types only. `is_named`: whether there are any.
bool check_limits(const Json& schema, const Json& value, bool& is_named) {
  bool is_valid = true;
  for (const auto& [key, limit] : schema.items()) {
    if (value.is_string()) {
      const bool is_length = key == "minLength" || key == "maxLength";
      is_named |= is_length || key == "pattern" || key == "format" || key == "contentEncoding" ||
                  key == "contentMediaType";
      if (is_length && limit.is_number()) {
        const auto length = static_cast<double>(count_characters(text_of(value)));
        is_valid &= key == "minLength" ? length >= limit.get<double>() : length <= limit.get<double>();
      } else if (key == "pattern" && limit.is_string()) {
        is_valid &= grammar::contains_regex(text_of(value), text_of(limit)).value_or(true);
      }
    } else if (value.is_number() && limit.is_number()) {
      const bool is_bound = key == "minimum"            ? value < limit
                            : key == "maximum"          ? value > limit
                            : key == "exclusiveMinimum" ? value <= limit
                            : key == "exclusiveMaximum" ? value >= limit
                            : key == "multipleOf" ? !is_multiple(value, limit)
                                                  : false;
      is_valid &= !is_bound;
    }
  }
  return is_valid;
}

// Whether keywords restrict an array or object beyond its type.
bool looks_inside(const Json& schema, const Json& value) {
  constexpr std::string_view kOfArrays[] = {"items",    "prefixItems", "minItems",        "maxItems",
                                            "contains", "uniqueItems", "additionalItems", "unevaluatedItems"};
  constexpr std::string_view kOfObjects[] = {
      "properties",    "required",      "additionalProperties", "patternProperties", "minProperties",
      "maxProperties", "propertyNames", "dependentRequired",    "dependentSchemas",  "unevaluatedProperties"};
  const auto is_there = [&schema](std::string_view key) { return schema.contains(key); };
  return value.is_array()    ? std::ranges::any_of(kOfArrays, is_there)
         : value.is_object() ? std::ranges::any_of(kOfObjects, is_there)
                             : false;
}

bool is_same_type(const Json& a, const Json& b) {
  return a.type() == b.type() || (a.is_number() && b.is_number());
}

}  // namespace

ArgumentSchema ArgumentSchema::of_tool(const Json& tools, std::string_view name) {
  if (!tools.is_array()) return {};
  for (const Json& tool : tools) {
    const Json* function = member(tool, "function");
    if (function == nullptr) function = &tool;
    const Json* own = member(*function, "name");
    if (own == nullptr || *own != name) continue;
    for (const char* key : {"parameters", "input_schema", "inputSchema"})
      if (const Json* parameters = member(*function, key)) {
        ArgumentSchema made;
        made.kind_ = Kind::kSchema;
        made.root_ = made.schema_ = parameters;
        return made;
      }
    return {};
  }
  return {};
}

ArgumentSchema ArgumentSchema::leaf(const Json& schema) const {
  ArgumentSchema made;
  made.kind_ = Kind::kSchema;
  made.root_ = root_;
  made.schema_ = &schema;
  return made;
}

ArgumentSchema ArgumentSchema::combine(Kind kind, std::vector<ArgumentSchema> parts) {
  if (kind == Kind::kAll) std::erase_if(parts, [](const ArgumentSchema& each) { return !each.is_known(); });
  if (std::ranges::none_of(parts, &ArgumentSchema::is_known)) return {};
  if (parts.size() == 1) return std::move(parts[0]);
  ArgumentSchema made;
  made.kind_ = kind;
  made.root_ = std::ranges::find_if(parts, &ArgumentSchema::is_known)->root_;
  made.parts_ = std::move(parts);
  return made;
}

// The schema of a part of the values: `own` of each combined schema.
template <class Own>
ArgumentSchema ArgumentSchema::descend(const Json& schema, Work& work, const Own& own) const {
  if (!schema.is_object() || --work.left < 0 || work.depth >= kMostSchemaDepth) return {};
  ++work.depth;
  std::vector<ArgumentSchema> all;
  if (const Json* reference = member(schema, "$ref"))
    if (const Json* target = resolve(*root_, *reference)) all.push_back(descend(*target, work, own));
  if (const Json* parts = member(schema, "allOf"); parts != nullptr && parts->is_array())
    for (const Json& each : *parts) all.push_back(descend(each, work, own));
  std::vector<ArgumentSchema> conditional;
  for (const char* key : {"then", "else"})
    if (const Json* branch = member(schema, key)) conditional.push_back(descend(*branch, work, own));
  if (!conditional.empty()) {
    conditional.emplace_back();
    all.push_back(combine(Kind::kAny, std::move(conditional)));
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const Json* branches = member(schema, key);
    if (branches == nullptr || !branches->is_array()) continue;
    std::vector<ArgumentSchema> any;
    for (const Json& each : *branches)
      if (own.fits(leaf(each), work)) any.push_back(descend(each, work, own));
    all.push_back(combine(Kind::kAny, std::move(any)));
  }
  all.push_back(own.read(schema));
  --work.depth;
  return combine(Kind::kAll, std::move(all));
}

template <class Own>
ArgumentSchema ArgumentSchema::descend(Work& work, const Own& own) const {
  if (kind_ == Kind::kUnknown) return {};
  if (kind_ == Kind::kSchema) return descend(*schema_, work, own);
  std::vector<ArgumentSchema> parts;
  for (const ArgumentSchema& each : parts_)
    if (own.fits(each, work)) parts.push_back(each.descend(work, own));
  return combine(kind_, std::move(parts));
}

ArgumentSchema ArgumentSchema::own_property(const Json& schema, const std::string& name) const {
  std::vector<ArgumentSchema> all;
  if (const Json* properties = member(schema, "properties"))
    if (const Json* found = member(*properties, name)) all.push_back(leaf(*found));
  if (const Json* patterns = member(schema, "patternProperties"); patterns != nullptr && patterns->is_object())
    for (const auto& [pattern, found] : patterns->items())
      if (grammar::contains_regex(name, pattern).value_or(false)) all.push_back(leaf(found));
  for (const char* key : {"additionalProperties", "unevaluatedProperties"})
    if (const Json* more = member(schema, key); all.empty() && more != nullptr && more->is_object())
      all.push_back(leaf(*more));
  return combine(Kind::kAll, std::move(all));
}

ArgumentSchema ArgumentSchema::property(const std::string& name) const {
  struct Own {
    const ArgumentSchema& self;
    const std::string& name;
    ArgumentSchema read(const Json& schema) const { return self.own_property(schema, name); }
    bool fits(const ArgumentSchema& each, Work& work) const {
      return each.check(Json::object(), Mode::kType, work).is_valid;
    }
  };
  Work work;
  return descend(work, Own{*this, name});
}

ArgumentSchema ArgumentSchema::item(size_t index) const {
  struct Own {
    const ArgumentSchema& self;
    size_t index;
    ArgumentSchema read(const Json& schema) const {
      const Json* prefix = member(schema, "prefixItems");
      const Json* items = member(schema, "items");
      const Json* rest = items;
      if (items != nullptr && items->is_array()) {  // as in older drafts
        prefix = items;
        rest = member(schema, "additionalItems");
      }
      if (prefix != nullptr && prefix->is_array() && index < prefix->size())
        return self.leaf((*prefix)[index]);
      return rest == nullptr ? ArgumentSchema() : self.leaf(*rest);
    }
    bool fits(const ArgumentSchema& each, Work& work) const {
      return each.check(Json::array(), Mode::kType, work).is_valid;
    }
  };
  Work work;
  return descend(work, Own{*this, index});
}

ArgumentSchema::Verdict ArgumentSchema::check(const Json& value) const {
  Work work;
  return check(value, Mode::kValue, work);
}

bool ArgumentSchema::allows_type_of(const Json& value) const {
  Work work;
  return check(value, Mode::kType, work).is_valid;
}

bool ArgumentSchema::names_type_of(const Json& value) const {
  Work work;
  const Verdict verdict = check(value, Mode::kType, work);
  return verdict.is_valid && verdict.is_named;
}

ArgumentSchema::Verdict ArgumentSchema::check(const Json& value, Mode mode, Work& work) const {
  if (kind_ == Kind::kUnknown) return {};
  if (kind_ == Kind::kSchema) return check_schema(*schema_, value, mode, work);
  const bool is_all = kind_ == Kind::kAll;
  Verdict whole{is_all, false};
  for (const ArgumentSchema& each : parts_) {
    const Verdict part = each.check(value, mode, work);
    whole.is_exact &= part.is_exact;
    whole.is_valid = is_all ? whole.is_valid && part.is_valid : whole.is_valid || part.is_valid;
    whole.is_named |= part.is_valid && part.is_named;
  }
  return whole;
}

// anyOf, oneOf and allOf.
ArgumentSchema::Verdict ArgumentSchema::check_branches(const Json& schema, const Json& value, Mode mode,
                                                       Work& work) const {
  Verdict whole;
  for (const char* key : {"allOf", "anyOf", "oneOf"}) {
    const Json* branches = member(schema, key);
    if (branches == nullptr || !branches->is_array()) continue;
    size_t valid = 0;
    bool is_named = false, is_exact = true;
    for (const Json& each : *branches) {
      const Verdict part = check_schema(each, value, mode, work);
      is_exact &= part.is_exact;
      valid += part.is_valid;
      is_named |= part.is_valid && part.is_named;
    }
    const bool is_exclusive = key[0] == 'o' && mode == Mode::kValue && is_exact;
    whole.is_exact &= is_exact;
    const bool holds = key[1] == 'l' ? valid == branches->size() : is_exclusive ? valid == 1 : valid > 0;
    whole.is_valid &= holds;
    whole.is_named |= holds && is_named;
  }
  return whole;
}

ArgumentSchema::Verdict ArgumentSchema::check_schema(const Json& schema, const Json& value, Mode mode,
                                                     Work& work) const {
  if (schema.is_boolean()) return {schema.get<bool>(), false, true};
  if (!schema.is_object() || --work.left < 0 || work.depth >= kMostSchemaDepth) return {};
  ++work.depth;
  Verdict whole = check_branches(schema, value, mode, work);
  const auto add = [&whole](bool is_valid, bool is_named) {
    whole.is_valid &= is_valid;
    whole.is_named |= is_named;
  };
  if (const Json* reference = member(schema, "$ref"))
    if (const Json* target = resolve(*root_, *reference)) {
      const Verdict part = check_schema(*target, value, mode, work);
      add(part.is_valid, part.is_named);
      whole.is_exact &= part.is_exact;
    }
  if (const Json* type = member(schema, "type")) {
    const auto holds = [&](const Json& each) {
      return each.is_string() && grammar::is_of_type(value, text_of(each) == "integer" && mode == Mode::kType
                                                                ? std::string_view("number")
                                                                : std::string_view(text_of(each)));
    };
    const bool is_valid = type->is_array() ? std::ranges::any_of(*type, holds) : holds(*type);
    add(is_valid, is_valid);
  }
  const auto is_listed = [&](const Json& each) {
    return mode == Mode::kType ? is_same_type(each, value) : each == value;
  };
  if (const Json* list = member(schema, "enum"); list != nullptr && list->is_array()) {
    const bool is_valid = std::ranges::any_of(*list, is_listed);
    add(is_valid, is_valid);
  }
  if (const Json* only = member(schema, "const")) add(is_listed(*only), is_listed(*only));
  bool is_named = false;
  const bool is_within = check_limits(schema, value, is_named);
  add(mode == Mode::kType || is_within, is_named);
  // 'not' and conditional keywords, as far as they can be decided.
  if (const Json* excluded = member(schema, "not"); excluded != nullptr && mode == Mode::kValue) {
    const Verdict part = check_schema(*excluded, value, mode, work);
    whole.is_exact &= part.is_exact;
    add(!part.is_valid || !part.is_exact, false);
  }
  if (const Json* condition = member(schema, "if"); condition != nullptr && mode == Mode::kValue) {
    const Verdict holds = check_schema(*condition, value, mode, work);
    whole.is_exact &= holds.is_exact;
    const Json* branch = member(schema, holds.is_valid ? "then" : "else");
    if (branch != nullptr && holds.is_exact) {
      const Verdict part = check_schema(*branch, value, mode, work);
      add(part.is_valid, part.is_named);
      whole.is_exact &= part.is_exact;
    }
  }
  if (whole.is_valid && looks_inside(schema, value)) whole.is_exact = false;
  --work.depth;
  return whole;
}

}  // namespace tessera::answer

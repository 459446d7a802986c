// Arrays of JSON schema.
#include <algorithm>
#include <string_view>

#include "graph/base/quote.h"
#include "graph/base/text.h"
#include "text/grammar/schema_reader.h"

namespace tessera::grammar {

Result<ExpressionId> SchemaReader::read_array(const Json& schema, const std::string& where) {
  const Within inside(*this, {});
  TSR_ASSIGN_OR_RETURN(const Limits length, read_limits(schema, "minItems", "maxItems", where));
  if (length.minimum > length.maximum)
    return nothing(where, format("minItems {} is above maxItems {}", length.minimum, length.maximum));
  const auto prefix = schema.find("prefixItems");
  // With all keywords in one schema, unevaluated items are those that 'items' leaves.
  const auto items = schema.contains("items") ? schema.find("items") : schema.find("unevaluatedItems");
  if (const auto unique = schema.find("uniqueItems");
      unique != schema.end() && *unique != Json(false) && length.maximum > 1)
    return read_set(schema, length, where);
  if (items != schema.end() && items->is_array())
    return schema_error(StatusCode::kUnsupported, where,
                        "'items' is a list, which older schemas had; wanted 'prefixItems'");
  if (prefix != schema.end() && (!prefix->is_array() || prefix->empty()))
    return schema_error(StatusCode::kInvalidArgument, where,
                        format("'prefixItems' is {}, wanted a list of schemas", quote_json(*prefix)));
  std::vector<ExpressionId> first;
  for (size_t i = 0; prefix != schema.end() && i < std::min<size_t>(prefix->size(), length.maximum); ++i) {
    TSR_ASSIGN_OR_RETURN(const ExpressionId item,
                         read_schema((*prefix)[i], format("{}/prefixItems/{}", where, i)));
    first.push_back(item);
  }
  if (first.empty() && items == schema.end() && length.minimum == 0 && length.maximum == kUnbounded)
    return json_.any_array();
  const auto count = static_cast<uint32_t>(first.size());
  // From the last item to the first: the possible rest. Items past `count` are alike.
  ExpressionId rest = out_.empty();
  if (length.maximum > count) {
    ExpressionId item = 0;
    if (items == schema.end()) {
      item = json_.any_value();
    } else {
      TSR_ASSIGN_OR_RETURN(item, read_schema(*items, where + "/items"));
    }
    const uint32_t least = length.minimum > count ? length.minimum - count : 0;
    const uint32_t most = length.maximum == kUnbounded ? kUnbounded : length.maximum - count;
    item = out_.shared(item, where + "/items");
    const ExpressionId next = out_.sequence({json_.separator(), item});
    if (count > 0) {
      rest = out_.repeat(next, least, most);
    } else {
      const uint32_t more = most == kUnbounded ? most : most - 1;
      rest = out_.sequence({item, out_.repeat(next, least > 0 ? least - 1 : 0, more)});
      if (least == 0) rest = out_.optional(rest);
    }
  }
  for (uint32_t i = count; i-- > 0;) {
    rest = i > 0 ? out_.sequence({json_.separator(), first[i], rest}) : out_.sequence({first[i], rest});
    if (i >= length.minimum) rest = out_.optional(rest);
  }
  return out_.sequence({out_.literal("["), json_.space(), rest, json_.space(), out_.literal("]")});
}

// A set of listable values. A few come in any order, many in the list's order.
Result<ExpressionId> SchemaReader::read_set(const Json& schema, const Limits& length,
                                            const std::string& where) {
  constexpr size_t kMostInAnyOrder = 8;
  constexpr uint64_t kMostRules = uint64_t{1} << 14;
  const auto items = schema.find("items");
  std::optional<std::vector<Json>> values;
  if (items != schema.end() && !schema.contains("prefixItems"))
    values = list_values(*items, where + "/items");
  if (!values)
    return schema_error(StatusCode::kUnsupported, where,
                        "'uniqueItems' is supported where 'items' allows a few values, such as those of an 'enum'; "
                        "these cannot be listed");
  const size_t count = values->size();
  if (length.minimum > count)
    return nothing(where, format("minItems is {}, of {} different values", length.minimum, count));
  const auto most = static_cast<uint32_t>(std::min<size_t>(length.maximum, count));
  std::vector<ExpressionId> written;
  for (const Json& value : *values) written.push_back(out_.shared(json_.exactly(value), where + "/items"));
  const bool in_any_order = count <= kMostInAnyOrder;
  // Without a maximum, sizes above the minimum are alike.
  const uint32_t most_told = most < count ? most : std::max(length.minimum, 1u);
  if (!in_any_order && uint64_t{count} * (uint64_t{most_told} + 1) > kMostRules)
    return schema_error(StatusCode::kUnsupported, where,
                        format("'uniqueItems' of {} values, up to {} of them, is too large", count, most));
  // By progress: the set of values, or the first value that may follow; and their number.
  std::map<std::pair<uint32_t, uint32_t>, RuleId> rules;
  std::vector<std::pair<uint32_t, uint32_t>> queue;
  const auto rule_of = [&](uint32_t state, uint32_t size) {
    const auto [found, is_new] = rules.try_emplace({state, size}, 0);
    if (is_new) {
      found->second = out_.declare_rule(where + "/uniqueItems");
      queue.emplace_back(state, size);
    }
    return found->second;
  };
  const auto item = [&](uint32_t i, uint32_t size, RuleId next) {
    const ExpressionId separator = size > 0 ? json_.separator() : out_.empty();
    return out_.sequence({separator, written[i], out_.call(next)});
  };
  const RuleId root = rule_of(0, 0);
  while (!queue.empty()) {
    const auto [state, size] = queue.back();
    queue.pop_back();
    std::vector<ExpressionId> parts;
    if (in_any_order) {
      if (size >= length.minimum) parts.push_back(out_.empty());
      for (uint32_t i = 0; i < count && size < most; ++i)
        if ((state >> i & 1) == 0) parts.push_back(item(i, size, rule_of(state | 1u << i, size + 1)));
    } else if (state == count) {
      if (size >= length.minimum) parts.push_back(out_.empty());
    } else {
      parts.push_back(out_.call(rule_of(state + 1, size)));
      const bool has_room = most == count || size < most;
      if (has_room) parts.push_back(item(state, size, rule_of(state + 1, std::min(size + 1, most_told))));
    }
    out_.define_rule(rules.at({state, size}), out_.sequence({out_.empty(), out_.choice(std::move(parts))}));
  }
  return out_.sequence(
      {out_.literal("["), json_.space(), out_.call(root), json_.space(), out_.literal("]")});
}

}  // namespace tessera::grammar

#include "text/grammar/schema_json.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "text/grammar/number_range.h"

namespace tessera::grammar {
namespace {

constexpr std::uint8_t kTogether = 1;  // subtype of a list of combined values

// SchemaBuilder: builds values; numbers beyond 64 bits keep their digits.
class SchemaBuilder : public nlohmann::json_sax<Json> {
 public:
  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(int64_t value) override { return put(value); }
  bool number_unsigned(uint64_t value) override { return put(value); }
  bool number_float(double value, const std::string& text) override {
    if (text.find_first_of(".eE") != std::string::npos) return put(value);
    return put(Json::binary({text.begin(), text.end()}));
  }
  bool string(std::string& value) override { return put(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::object()); }
  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

  Json take() { return std::move(root_); }

 private:
  Json* add(Json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    if (open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    Json& member = (*open_.back())[key_];
    member = std::move(value);
    return &member;
  }
  bool put(Json value) {
    add(std::move(value));
    return true;
  }
  bool open(Json value) {
    open_.push_back(add(std::move(value)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json root_;
  std::vector<Json*> open_;  // containers do not move while a member is open
  std::string key_;
};

bool is_older_draft(const Json& root) {
  const auto draft = root.is_object() ? root.find("$schema") : root.end();
  if (!root.is_object() || draft == root.end() || !draft->is_string()) return false;
  const std::string name = draft->get<std::string>();
  return name.find("draft-0") != std::string::npos || name.find("2019-09") != std::string::npos;
}

// Members of `properties` are schemas under any name; other keywords, except these, are searched.
void modernize(Json& schema) {
  if (schema.is_array())
    for (Json& each : schema) modernize(each);
  if (!schema.is_object()) return;
  if (const auto items = schema.find("items"); items != schema.end() && items->is_array()) {
    Json first = *items;
    schema.erase("items");
    if (!first.empty()) schema["prefixItems"] = std::move(first);
    if (const auto more = schema.find("additionalItems"); more != schema.end()) {
      Json rest = *more;
      schema.erase("additionalItems");
      schema["items"] = std::move(rest);
    }
  } else if (schema.contains("additionalItems")) {
    schema.erase("additionalItems");  // without a list it has no effect
  }
  for (const auto& [key, value] : schema.items())
    if (key != "enum" && key != "const" && key != "default" && key != "examples") modernize(value);
}

Json binary_mark() { return Json::binary({}, kTogether); }
bool is_mark(const Json& value) {
  return value.is_binary() && value.get_binary().has_subtype() && value.get_binary().subtype() == kTogether;
}

}  // namespace

Result<Json> parse_schema(std::string_view text) {
  const auto checked = parse_json(text, "JSON schema", kMostSchemaBytes);
  if (!checked.ok()) return Status(StatusCode::kInvalidArgument, std::string(checked.status().message()));
  SchemaBuilder builder;
  if (!Json::sax_parse(text, &builder))
    return Status(StatusCode::kInvalidArgument, "JSON schema: the text is not JSON");
  Json schema = builder.take();
  if (is_older_draft(schema)) modernize(schema);
  return schema;
}

bool is_number(const Json& value) { return value.is_number() || (value.is_binary() && !is_mark(value)); }

std::string json_text(const Json& value) {
  if (value.is_binary()) return std::string(value.get_binary().begin(), value.get_binary().end());
  if (!value.is_structured()) return dump(value);
  std::string text(1, value.is_array() ? '[' : '{');
  for (const auto& [key, each] : value.items()) {
    if (text.size() > 1) text += ',';
    if (value.is_object()) text += dump(Json(key)) + ":";
    text += json_text(each);
  }
  return text + (value.is_array() ? ']' : '}');
}

int compare_numbers(const Json& a, const Json& b) {
  const auto one = decimal_of(a), other = decimal_of(b);
  if (one.ok() && other.ok()) return compare(*one, *other);
  const auto approximate = [](const Json& value) {
    return value.is_binary() ? std::stod(json_text(value)) : value.get<double>();
  };
  const double x = approximate(a), y = approximate(b);
  return x < y ? -1 : x > y ? 1 : 0;
}

bool is_same(const Json& a, const Json& b) {
  if (a.type() == b.type() && !a.is_structured()) return a == b;
  if (is_number(a) && is_number(b)) return compare_numbers(a, b) == 0;
  if (a.type() != b.type()) return false;
  if (!a.is_structured()) return a == b;
  if (a.size() != b.size()) return false;
  if (a.is_array()) {
    for (size_t i = 0; i < a.size(); ++i)
      if (!is_same(a[i], b[i])) return false;
    return true;
  }
  for (const auto& [key, value] : a.items())
    if (!b.contains(key) || !is_same(value, b[key])) return false;
  return true;
}

std::vector<Json> values_together(const Json& value) {
  if (!value.is_array() || value.empty() || !is_mark(value[0])) return {value};
  return {value.begin() + 1, value.end()};
}

Json hold_together(const Json& a, const Json& b) {
  Json all = Json::array({binary_mark()});
  for (const Json& each : {a, b})
    for (const Json& value : values_together(each))
      if (std::find(all.begin() + 1, all.end(), value) == all.end()) all.push_back(value);
  return all.size() == 2 ? all[1] : all;
}

}  // namespace tessera::grammar

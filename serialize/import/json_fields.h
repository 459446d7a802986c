// JsonFields: reads fields of a JSON object by type, within bounds, and records which
// were read. Keeps the first error; later reads return defaults. Null equals absent.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "graph/base/result.h"
#include "text/json.h"

namespace tessera {

class JsonFields {
 public:
  // `json` must outlive it. `where` begins messages: "config.json", "rope_scaling".
  JsonFields(const Json& json, std::string where) : json_(json), where_(std::move(where)) {}

  bool has(std::string_view key);  // present and not null
  bool is_given(std::string_view key) const { return json_.is_object() && json_.contains(std::string(key)); }
  int64_t integer(std::string_view key, std::optional<int64_t> otherwise, int64_t least, int64_t most);
  int64_t size(std::string_view key, std::optional<int64_t> otherwise = {}) {
    return integer(key, otherwise, 1, (int64_t{1} << 31) - 1);
  }
  double real(std::string_view key, std::optional<double> otherwise = {});
  bool flag(std::string_view key, bool otherwise);
  std::string text(std::string_view key, std::optional<std::string> otherwise = {});
  // Empty if absent; only numbers, at most `most`.
  std::vector<double> reals(std::string_view key, size_t most);
  std::vector<std::string> texts(std::string_view key, size_t most);
  const Json* object(std::string_view key);  // null: absent
  const Json* any(std::string_view key);     // any type; null: absent

  // An error unless the field is absent or has this value.
  void wants(std::string_view key, const Json& value, std::string_view meaning);
  void fail(StatusCode code, std::string message);
  const Status& status() const { return status_; }

  std::vector<std::pair<std::string, std::string>> used() const { return list(true); }
  std::vector<std::pair<std::string, std::string>> unused() const { return list(false); }

 private:
  const Json* find(std::string_view key);
  void wrong(std::string_view key, const Json& value, std::string_view wanted);
  void missing(std::string_view key, std::string_view wanted);
  std::vector<std::pair<std::string, std::string>> list(bool was_read) const;

  const Json& json_;
  const std::string where_;
  std::set<std::string, std::less<>> read_;
  Status status_;
};

}  // namespace tessera

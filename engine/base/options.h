// Options: keyed values from the caller. OptionReader reads them by type
// and refuses unknown keys at the end, naming the nearest known ones.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/attr.h"
#include "graph/base/result.h"

namespace tessera {

// The value types of op attributes, so that one set serves both.
using Options = std::map<std::string, AttrValue, std::less<>>;

// Largest limit on memory: sums of limits and used bytes stay within 64 bits.
inline constexpr int64_t kMostBytes = int64_t{1} << 60;

std::string lower_case(std::string text);  // of ASCII letters

// OptionReader: reads every known key once, then `finish`,
// which reports the first error; so reads can be initializers.
class OptionReader {
 public:
  // `consumer` names the reader in messages: "trainer".
  OptionReader(const Options& options, std::string consumer)
      : options_(options), consumer_(std::move(consumer)) {}

  int64_t i64(std::string_view key, int64_t otherwise, int64_t low = INT64_MIN, int64_t high = INT64_MAX);
  double f64(std::string_view key, double otherwise, double low = -1e300, double high = 1e300);
  bool flag(std::string_view key, bool otherwise) { return i64(key, otherwise ? 1 : 0, 0, 1) != 0; }
  std::string text(std::string_view key, std::string otherwise = {});
  // A lower-case word: type names are accepted in either case (Q4_K_M).
  std::string word(std::string_view key, std::string otherwise = {});
  // Reads one of `choices`, in letters of either case; the error lists them.
  std::string choice(std::string_view key, std::string otherwise, std::span<const std::string_view> choices);
  std::string choice(std::string_view key, std::string otherwise,
                     std::initializer_list<std::string_view> choices) {
    return choice(key, std::move(otherwise), std::span(choices.begin(), choices.size()));
  }
  int64_t bytes(std::string_view key, int64_t otherwise);  // an integer, or "2GiB"; at most kMostBytes
  bool has(std::string_view key) const { return options_.find(key) != options_.end(); }

  // Accepts keys that the caller reads elsewhere, when one set of options serves several readers.
  void accept(std::initializer_list<std::string_view> keys);

  const std::vector<std::string>& known() const { return known_; }  // keys that were read or accepted

  void fail(Status status);
  Status finish();

 private:
  const AttrValue* take(std::string_view key);
  void wrong_type(std::string_view key, std::string_view wanted, const AttrValue& found);

  const Options& options_;
  std::string consumer_;
  std::vector<std::string> known_;
  Status first_error_;
};

// "T=128,N=3" -> pairs, in order.
Result<std::vector<std::pair<std::string, int64_t>>> parse_symbol_values(std::string_view text);

}  // namespace tessera

// PayloadScanner: incrementally finds the end of a JSON value, or of a
// value with brackets and quotes. Reads each byte once, in constant memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "text/json.h"

namespace tessera::answer {

// Bound of an object's members and a call's arguments, since lookups are linear.
inline constexpr int kMostMembers = 1024;

enum class Syntax : uint8_t {
  kJson,    // an object or array, strictly
  kPython,  // brackets and strings in single or double quotes
  kQuoted,  // brackets, and strings between marks such as <|"|>
};

class PayloadScanner {
 public:
  enum class Progress : uint8_t { kMore, kEnd, kFailed };

  PayloadScanner() = default;
  // The value begins at byte `begin` with a bracket.
  PayloadScanner(Syntax syntax, size_t begin, std::string quote = {})
      : syntax_(syntax), at_(begin), quote_(std::move(quote)) {}

  // `text` extends that of earlier calls. kEnd: the value ends before at().
  // kFailed: at() is an invalid byte, or exceeds kMostJsonDepth or kMostMembers.
  Progress advance(std::string_view text);
  size_t at() const { return at_; }

  // Bracket: one that is open at at().
  struct Bracket {
    size_t begin = 0;
    size_t member = 0;  // begin of its member in progress: behind the bracket, or its last comma
  };
  // Outermost first.
  std::span<const Bracket> open() const { return {brackets_, static_cast<size_t>(depth_)}; }
  // The text of open()[level] with the members before that in progress, closed.
  std::string closed(std::string_view text, size_t level) const;

 private:
  // Want: the next token of JSON.
  enum class Want : uint8_t { kValue, kValueOrEnd, kKey, kKeyOrEnd, kColon, kCommaOrEnd };

  bool push(char bracket);
  bool pop(char bracket);
  bool begin_member();
  bool step_json(char c);

  Syntax syntax_ = Syntax::kJson;
  size_t at_ = 0;
  std::string quote_;
  char open_quote_ = 0;  // the quote of the string that is open
  bool is_escaped_ = false, is_key_ = false, in_word_ = false;
  Want want_ = Want::kValue;
  int depth_ = 0;
  char closing_[kMostJsonDepth] = {};
  int members_[kMostJsonDepth] = {};
  Bracket brackets_[kMostJsonDepth] = {};
};

}  // namespace tessera::answer

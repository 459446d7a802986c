#include "text/answer/payload_scanner.h"

#include "text/answer/marker.h"

namespace tessera::answer {

bool PayloadScanner::push(char bracket) {
  if (depth_ == kMostJsonDepth) return false;
  members_[depth_] = 0;
  brackets_[depth_] = {at_, at_ + 1};
  closing_[depth_++] = bracket == '{' ? '}' : bracket == '[' ? ']' : ')';
  return true;
}

bool PayloadScanner::pop(char bracket) {
  if (depth_ == 0 || closing_[depth_ - 1] != bracket) return false;
  --depth_;
  return true;
}

// Called at a comma.
bool PayloadScanner::begin_member() {
  if (depth_ > 0) brackets_[depth_ - 1].member = at_ + 1;
  return depth_ == 0 || closing_[depth_ - 1] == ']' || ++members_[depth_ - 1] < kMostMembers;
}

std::string PayloadScanner::closed(std::string_view text, size_t level) const {
  const Bracket& bracket = brackets_[level];
  const size_t end = bracket.member > bracket.begin + 1 ? bracket.member - 1 : bracket.member;
  return std::string(text.substr(bracket.begin, end - bracket.begin)) + closing_[level];
}

bool PayloadScanner::step_json(char c) {
  if (open_quote_) {
    if (is_escaped_)
      is_escaped_ = false;
    else if (c == '\\')
      is_escaped_ = true;
    else if (c == '"') {
      open_quote_ = 0;
      want_ = is_key_ ? Want::kColon : Want::kCommaOrEnd;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      return false;
    }
    return true;
  }
  const bool is_word =
      (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' || c == '+' || c == '.' || c == 'E';
  if (in_word_ && is_word) return true;
  in_word_ = false;
  if (is_space(c)) return true;
  const bool wants_value = want_ == Want::kValue || want_ == Want::kValueOrEnd;
  const bool wants_key = want_ == Want::kKey || want_ == Want::kKeyOrEnd;
  switch (c) {
    case '"':
      if (depth_ == 0 || !(wants_value || wants_key)) return false;
      open_quote_ = c;
      is_key_ = wants_key;
      return true;
    case '{':
    case '[':
      if (!wants_value || !push(c)) return false;
      want_ = c == '{' ? Want::kKeyOrEnd : Want::kValueOrEnd;
      return true;
    case '}':
      if ((want_ != Want::kKeyOrEnd && want_ != Want::kCommaOrEnd) || !pop(c)) return false;
      want_ = Want::kCommaOrEnd;
      return true;
    case ']':
      if ((want_ != Want::kValueOrEnd && want_ != Want::kCommaOrEnd) || !pop(c)) return false;
      want_ = Want::kCommaOrEnd;
      return true;
    case ':':
      if (want_ != Want::kColon) return false;
      want_ = Want::kValue;
      return true;
    case ',':
      if (want_ != Want::kCommaOrEnd || depth_ == 0 || !begin_member()) return false;
      want_ = closing_[depth_ - 1] == '}' ? Want::kKey : Want::kValue;
      return true;
    default:
      // Numbers and words are parsed once the value is complete.
      if (!is_word || !wants_value || depth_ == 0) return false;
      in_word_ = true;
      want_ = Want::kCommaOrEnd;
      return true;
  }
}

PayloadScanner::Progress PayloadScanner::advance(std::string_view text) {
  for (; at_ < text.size(); ++at_) {
    const char c = text[at_];
    if (syntax_ == Syntax::kJson) {
      if (!step_json(c)) return Progress::kFailed;
    } else if (open_quote_) {
      if (syntax_ == Syntax::kQuoted) {
        const Matched matched = match_marker(quote_, text, at_);
        if (matched.match == Match::kPartial) return Progress::kMore;
        if (matched.match == Match::kYes) {
          open_quote_ = 0;
          at_ = matched.end - 1;
        }
      } else if (is_escaped_) {
        is_escaped_ = false;
      } else if (c == '\\') {
        is_escaped_ = true;
      } else if (c == open_quote_) {
        open_quote_ = 0;
      }
      continue;
    } else if (syntax_ == Syntax::kPython && (c == '"' || c == '\'')) {
      open_quote_ = c;
    } else if (c == '{' || c == '[' || c == '(') {
      if (!push(c)) return Progress::kFailed;
    } else if (c == '}' || c == ']' || c == ')') {
      if (!pop(c)) return Progress::kFailed;
    } else if (c == ',') {
      if (!begin_member()) return Progress::kFailed;
    } else if (syntax_ == Syntax::kQuoted && c == quote_.front()) {
      const Matched matched = match_marker(quote_, text, at_);
      if (matched.match == Match::kPartial) return Progress::kMore;
      if (matched.match == Match::kYes) {
        open_quote_ = quote_.front();
        at_ = matched.end - 1;
      }
    }
    if (depth_ == 0 && !open_quote_) {
      if (c != ']' && c != ')' && c != '}') return Progress::kFailed;
      ++at_;
      return Progress::kEnd;
    }
  }
  return Progress::kMore;
}

}  // namespace tessera::answer

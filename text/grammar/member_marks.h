// MemberMarks: members of an object between marks, in place of braces and colons: <parameter=NAME>VALUE</parameter>, or
// NAME=VALUE. A value.
#pragma once

#include <string>
#include <string_view>

#include "text/grammar/expression.h"

namespace tessera::grammar {

// WrittenMark: a mark as readers see it, and its bytes, in which control tokens are TokenBytes::control_bytes.
struct WrittenMark {
  std::string text, bytes;
};

struct MemberMarks {
  WrittenMark open, middle;  // before NAME, and between NAME and VALUE
  WrittenMark close;         // after VALUE; "\1" repeats NAME
  ExpressionId separator = 0;
  std::string value_lead, value_tail;  // white space around VALUE
  bool quotes_names = false;           // names that are no words are JSON strings
  bool has_plain_texts = false;        // texts have no quotation marks: they end at `close`
  // Whether VALUE's type is stated: `middle`, a word, `kind_end`. The word of texts; others have that of
  // kind_of.
  bool has_kind = false;
  std::string text_kind;
  WrittenMark kind_end;

  std::string kind_of(std::string_view type) const;
  // Whether readers find the name's end.
  bool can_write(std::string_view name) const;
};

}  // namespace tessera::grammar

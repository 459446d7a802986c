#include "text/grammar/mark_language.h"

#include <utility>
#include <vector>

namespace tessera::grammar {
namespace {

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

LanguageId mark_language(Languages& languages, std::string_view mark) {
  const LanguageId space = languages.characters(CharacterSet({{'\t', '\r'}, {' ', ' '}}));
  LanguageId made = languages.empty();
  for (size_t end = mark.size(); end > 0;) {
    size_t begin = end;
    const bool is_blank = is_space(mark[end - 1]);
    while (begin > 0 && is_space(mark[begin - 1]) == is_blank) --begin;
    const LanguageId part =
        is_blank ? languages.repeat(space, 0, kUnbounded) : languages.text(mark.substr(begin, end - begin));
    made = languages.sequence(part, made);
    end = begin;
  }
  return made;
}

}  // namespace

LanguageId texts_without(Languages& languages, std::string_view mark) {
  const LanguageId found = languages.sequence(mark_language(languages, mark), languages.anything());
  return languages.complement(languages.sequence(languages.anything(), found));
}

LanguageId texts_before(Languages& languages, std::string_view mark) {
  std::vector<LanguageId> all = {texts_without(languages, mark)};
  // A mark may end as it begins, such as "aba": the text "ab" before it makes "ababa", in which the mark comes earlier.
  for (size_t common = 1; common < mark.size(); ++common)
    if (mark.ends_with(mark.substr(0, common))) {
      const LanguageId begun = mark_language(languages, mark.substr(0, mark.size() - common));
      all.push_back(languages.complement(languages.sequence(languages.anything(), begun)));
    }
  return languages.both(std::move(all));
}

}  // namespace tessera::grammar

// Languages of free text that a mark ends, such as "</parameter>". White space
// in a mark stands for any white space, also none.
#pragma once

#include <string_view>

#include "text/grammar/language.h"

namespace tessera::grammar {

// Texts that do not contain the mark.
LanguageId texts_without(Languages& languages, std::string_view mark);
// Texts that the mark may follow: in both together its first place is the text's end.
LanguageId texts_before(Languages& languages, std::string_view mark);

}  // namespace tessera::grammar

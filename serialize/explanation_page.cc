#include "serialize/explanation_page.h"

#include <string_view>

#include "serialize/explanation_json.h"
#include "serialize/explanation_page_html.h"

namespace tessera {

std::string explanation_to_page(const Explanation& explanation) {
  constexpr std::string_view kMark = "/*EXPLANATION*/null";
  const std::string json = explanation_to_json(explanation, true);
  // Inside a script element no text may look like the element's end.
  std::string safe;
  safe.reserve(json.size());
  for (const char c : json)
    if (c == '<')
      safe += "\\u003c";
    else
      safe += c;
  std::string page(kExplanationPage);
  page.replace(page.find(kMark), kMark.size(), safe);
  return page;
}

}  // namespace tessera

#include "serialize/html_page.h"

namespace tessera {

std::string fill_page(std::string_view page, std::string_view placeholder, std::string_view json) {
  const size_t at = page.find(placeholder);
  std::string filled(page.substr(0, at));
  filled.reserve(page.size() + json.size());
  for (const char c : json)
    if (c == '<')
      filled += "\\u003c";
    else
      filled += c;
  filled += page.substr(at + placeholder.size());
  return filled;
}

}  // namespace tessera

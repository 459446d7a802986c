#include "graph/base/quote.h"

#include <doctest/doctest.h>

#include "graph/base/status.h"

namespace tessera {

TEST_CASE("a_quote_keeps_both_ends_of_long_text_and_whole_characters") {
  CHECK(quote("short") == "short");
  CHECK(quote(std::string(200, 'a')) == std::string(200, 'a'));
  const std::string cut = quote("begin" + std::string(20 << 20, 'x') + "end");
  CHECK(cut.size() <= 200);
  CHECK(cut.starts_with("beginx"));
  CHECK(cut.ends_with("xend"));
  CHECK(cut.find("… [20971528 bytes] …") != std::string::npos);
  for (size_t shift = 0; shift < 3; ++shift) {
    std::string text(shift, 'a');
    for (int i = 0; i < 200; ++i) text += "語";
    const std::string kept = quote(text, 100);
    CHECK(kept.size() <= 100);
    size_t continuing = 0, leading = 0;
    for (const char c : kept) {
      continuing += (c & 0xC0) == 0x80;
      leading += (c & 0xF0) == 0xE0;
    }
    CHECK(continuing == 2 * leading);
  }
}

TEST_CASE("a_message_is_short_whatever_it_repeats_and_ends_with_its_remedy") {
  const std::string huge(20 << 20, 'x');
  const Status status(StatusCode::kCorrupt, "found '" + huge + "', wanted a name: give another");
  CHECK(status.message().size() <= 2000);
  CHECK(status.message().starts_with("found 'xxx"));
  CHECK(status.message().ends_with("', wanted a name: give another"));
  CHECK(status.with_context(huge).message().size() <= 2000);
}

}  // namespace tessera

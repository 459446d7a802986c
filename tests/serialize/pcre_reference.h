// PcreReference: a pattern as PCRE2 reads it, which other readers are compared with. \d, \w and \s are of ASCII.
#pragma once

#define PCRE2_CODE_UNIT_WIDTH 8
#include <doctest/doctest.h>
#include <pcre2.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::grammar::testing {

class PcreReference {
 public:
  // The whole text matches, or else a part of it.
  explicit PcreReference(const std::string& pattern, bool is_whole = true) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    const uint32_t options =
        PCRE2_UTF | PCRE2_DOLLAR_ENDONLY | (is_whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0u);
    code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), options, &error,
                              &offset, nullptr));
    REQUIRE_MESSAGE(code_ != nullptr, pattern);
    data_.reset(pcre2_match_data_create_from_pattern(code_.get(), nullptr));
  }
  // 1 and 0; -1 where PCRE2 gives up.
  int matches(const std::string& text) const {
    const int found = pcre2_match(code_.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0,
                                  data_.get(), nullptr);
    return found >= 0 ? 1 : found == PCRE2_ERROR_NOMATCH ? 0 : -1;
  }

 private:
  struct Free {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
  };
  std::unique_ptr<pcre2_code, Free> code_;
  std::unique_ptr<pcre2_match_data, Free> data_;
};

}  // namespace tessera::grammar::testing

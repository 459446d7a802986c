// tsr_options.
#include "capi/guard.h"
#include "capi/handles.h"
#include "engine/base/foreign_words.h"
#include "engine/planning/option_check.h"

using namespace tessera;
using namespace tessera::capi;

namespace {

template <class Value>
tsr_status* set(tsr_options* options, const char* key, Value&& make_value) noexcept {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{options, "options"}, {key, "key"}}));
    if (*key == '\0') return Status(StatusCode::kInvalidArgument, "key is empty");
    TSR_ASSIGN_OR_RETURN(AttrValue value, make_value());
    options->value.insert_or_assign(key, std::move(value));
    return {};
  });
}

}  // namespace

tsr_status* tsr_options_new(tsr_options** out_options) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{out_options, "out_options"}}));
    *out_options = new tsr_options;
    return {};
  });
}

tsr_status* tsr_options_set_i64(tsr_options* options, const char* key, int64_t value) {
  return set(options, key, [&]() -> Result<AttrValue> { return AttrValue(value); });
}

tsr_status* tsr_options_set_f64(tsr_options* options, const char* key, double value) {
  return set(options, key, [&]() -> Result<AttrValue> { return AttrValue(value); });
}

tsr_status* tsr_options_set_str(tsr_options* options, const char* key, const char* value) {
  return set(options, key, [&]() -> Result<AttrValue> {
    TSR_RETURN_IF_ERROR(required({{value, "value"}}));
    return AttrValue(std::string(value));
  });
}

tsr_status* tsr_options_set_i64_list(tsr_options* options, const char* key, const int64_t* values,
                                     size_t count) {
  return set(options, key, [&]() -> Result<AttrValue> {
    if (count > 0) TSR_RETURN_IF_ERROR(required({{values, "values"}}));
    return AttrValue(std::vector<int64_t>(values, values + count));
  });
}

tsr_status* tsr_options_check(const tsr_options* options, const char* consumer) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{options, "options"}, {consumer, "consumer"}}));
    return check_options(consumer, options->value);
  });
}

tsr_status* tsr_word_hint(const char* kind, const char* word, const char* known, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{kind, "kind"}, {word, "word"}, {known, "known"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string hint, word_hint(kind, word, known));
    return give_text(std::move(hint), out_text);
  });
}

void tsr_options_free(tsr_options* options) { delete options; }

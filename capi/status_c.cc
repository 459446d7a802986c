// tsr_version, tsr_status, tsr_code, tsr_text.
#include "capi/guard.h"
#include "capi/handles.h"
#include "graph/base/status_codes.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

static_assert(TSR_INTERNAL == static_cast<int>(StatusCode::kInternal));
static_assert(TSR_TIMEOUT == static_cast<int>(StatusCode::kTimeout));
static_assert(TSR_NOT_FINITE == static_cast<int>(kNotFinite) &&
              TSR_VALUES_LOST == static_cast<int>(kValuesLost));
static_assert(TSR_BUSY == static_cast<int>(kBusy) && TSR_EXISTS == static_cast<int>(kExists));
static_assert(TSR_CHANGED == static_cast<int>(kChanged) && TSR_FORKED == static_cast<int>(kForked));

uint32_t tsr_version(void) { return TSR_VERSION; }

tsr_status* tsr_version_check(uint32_t header_version) {
  return guard([&]() -> Status {
    const uint32_t major = header_version / 10000, minor = header_version / 100 % 100;
    const bool same_line = major == TSR_VERSION_MAJOR && (major > 0 || minor == TSR_VERSION_MINOR);
    if (same_line && header_version <= TSR_VERSION) return {};
    return Status(
        StatusCode::kUnsupported,
        format(
            "compiled with the header of Tessera {}.{}.{}, running with the library {}.{}.{}: compile again "
            "with the library's own header",
            major, minor, header_version % 100, TSR_VERSION_MAJOR, TSR_VERSION_MINOR, TSR_VERSION_PATCH));
  });
}

tsr_code tsr_status_code(const tsr_status* status) {
  return status ? static_cast<tsr_code>(status->value.code()) : TSR_OK;
}

const char* tsr_status_message(const tsr_status* status) {
  return status ? status->value.message().data()
                : "";  // a view of a whole std::string or literal: NUL-terminated
}

int32_t tsr_status_number(const tsr_status* status, const char* key, int64_t* out_value) {
  if (!status || !key) return 0;
  const std::optional<int64_t> value = status->value.number(key);
  if (value && out_value) *out_value = *value;
  return value.has_value();
}

const char* tsr_status_number_key(const tsr_status* status, size_t number) {
  const std::string* key = status ? status->value.number_key(number) : nullptr;
  return key ? key->c_str() : nullptr;
}

void tsr_status_free(tsr_status* status) { release(status); }

const char* tsr_code_name(tsr_code code) { return status_code_name(static_cast<StatusCode>(code)).data(); }

const char* tsr_text_data(const tsr_text* text) { return text ? text->value.c_str() : ""; }
size_t tsr_text_size(const tsr_text* text) { return text ? text->value.size() : 0; }
void tsr_text_free(tsr_text* text) { delete text; }

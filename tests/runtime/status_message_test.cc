#include "runtime/status_message.h"

#include <doctest/doctest.h>

namespace tessera {
namespace {

TEST_CASE("a status goes through its message with code, numbers and text") {
  const Status given = Status(StatusCode::kOutOfMemory, "it takes\n\n7 bytes: more").with_number("needed_bytes", 7).with_number("limit_bytes", -3);
  const Status found = status_of_message(to_message(given));
  CHECK(found.to_string() == given.to_string());
  CHECK(found.number("needed_bytes") == 7);
  CHECK(found.number("limit_bytes") == -3);
  CHECK(status_of_message(to_message(Status())).ok());
  CHECK(status_of_message(to_message(Status(StatusCode::kIo, ""))).code() == StatusCode::kIo);
}

TEST_CASE("what is no message of a status is an internal error") {
  for (const char* text : {"", "\n", "x\n\n", "-1\n\n", "6", "6\n", "6\nneeded_bytes\n\nx", "6\nneeded_bytes seven\n\nx"})
    CHECK(status_of_message(text).code() == StatusCode::kInternal);
}

}  // namespace
}  // namespace tessera

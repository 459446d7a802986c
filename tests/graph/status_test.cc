#include "graph/base/status.h"

#include <doctest/doctest.h>

#include <new>
#include <stdexcept>
#include <system_error>

using namespace tessera;

TEST_CASE("what is thrown becomes the status that says what to do") {
  const auto status_of = [](auto thrown) { return catch_status([&]() -> Status { throw thrown; }); };
  CHECK(status_of(std::bad_alloc()).code() == StatusCode::kOutOfMemory);
  CHECK(status_of(std::runtime_error("odd")).to_string() == "internal: odd");
  CHECK(status_of(std::system_error(std::make_error_code(std::errc::io_error))).code() ==
        StatusCode::kInternal);
  // Of std::thread, where a process or a container may have no more threads.
  const Status refused =
      status_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(refused.code() == StatusCode::kOutOfMemory);
  CHECK(refused.message().find("no more threads") != std::string_view::npos);
}

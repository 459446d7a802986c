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
  // The error of std::thread, where a process or a container may have no more threads.
  const Status refused =
      status_of(std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again)));
  CHECK(refused.code() == StatusCode::kOutOfMemory);
  CHECK(refused.message().find("no more threads") != std::string_view::npos);
}

TEST_CASE("numbers of an error: one a key, the latest; those of another error where it has none itself") {
  const Status first = Status(StatusCode::kOutOfMemory, "full").with_number("a", 1).with_number("b", 2);
  const Status other = Status(StatusCode::kIo, "io").with_number("b", 5).with_number("c", 6);
  CHECK(first.with_number("a", 9).number("a") == 9);
  CHECK(first.with_number("a", 9).number_key(2) == nullptr);
  const Status both = first.with_numbers_of(other);
  CHECK(both.number("b") == 2);
  CHECK(both.number("c") == 6);
  CHECK(both.number_key(3) == nullptr);
  CHECK(!both.number("d"));
  CHECK(both.with_context("here").number("a") == 1);
  CHECK(Status().with_number("a", 1).ok());
  CHECK(Status().with_numbers_of(both).number_key(0) == nullptr);
}

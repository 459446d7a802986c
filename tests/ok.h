// ok: the value of a Result, or a failure of the test with its message.
#pragma once

#include <doctest/doctest.h>

#include <string>
#include <utility>

#include "graph/base/result.h"

namespace tessera::test {

template <class T>
T ok(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), result.status().to_string());
  return std::move(result).value();
}

}  // namespace tessera::test

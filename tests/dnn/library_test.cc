// A cuDNN that cannot be used is named with what is wrong with it. The loader finds the one that is made for
// this (library.c) where TESSERA_FAKE_CUDNN gives its version.
#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "runtime/backends/cuda/dnn_library.h"

namespace tessera::cuda {

TEST_CASE("a_cudnn_that_is_too_old_or_lacks_a_function_is_refused" * doctest::test_suite("on request")) {
  const char* version = std::getenv("TESSERA_FAKE_CUDNN");
  REQUIRE_MESSAGE(version != nullptr, "TESSERA_FAKE_CUDNN gives the version of the library to be found");
  const Result<const Dnn*> found = dnn();
  REQUIRE(!found.ok());
  CHECK(found.status().code() == StatusCode::kUnsupported);
  const bool is_old = std::atoi(version) < 91600;
  CHECK_MESSAGE(
      found.status().message().find(is_old ? "at least 91600 is wanted: install a newer libcudnn.so.9"
                                           : "is not in the library") != std::string::npos,
      found.status().to_string());
}

}  // namespace tessera::cuda

// Cases that do not run here, said so that `./dev test` counts them (tests/cases.py).
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>
#include <string_view>

namespace tessera::test {

// The case in progress is not run, or not all of it, for this reason. Its caller returns.
inline void skip(std::string_view reason) {
  const doctest::TestCaseData* current = doctest::getContextOptions()->currentTest;
  const std::string name = current != nullptr ? current->m_name : "?";
  std::printf("skipped | %s | %s\n", name.c_str(), std::string(reason).c_str());
  std::fflush(stdout);
}

}  // namespace tessera::test

// Paths of shared test data, and of temporary files.
#pragma once

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/skip.h"

namespace tessera::testing {

// The shared data folder, or empty; then the caller says that it skips.
inline std::string shared_data() {
  if (const char* given = std::getenv("TESSERA_TEST_DATA")) return given;
  const std::string folder = std::string(TSR_SOURCE_DIR) + "/../shared/data";
  return std::filesystem::is_directory(folder) ? folder : "";
}

// TSR_SHARED_FILE("models/x.gguf"): its path, or returns from the test, which counts as skipped.
#define TSR_SHARED_FILE(variable, name)                                                       \
  const std::string variable = ::tessera::testing::shared_data() + "/" + (name);              \
  if (!std::filesystem::exists(variable)) {                                                   \
    ::tessera::test::skip("no shared data (TESSERA_TEST_DATA names the folder that has it)"); \
    return;                                                                                   \
  }

inline std::string read_text_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

inline void write_text_file(const std::string& path, std::string_view text) {
  std::ofstream(path, std::ios::binary).write(text.data(), static_cast<std::streamsize>(text.size()));
}

// A fresh folder that goes away with the object.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "tessera_test_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~ScratchFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace tessera::testing

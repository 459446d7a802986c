#include "engine/base/read_paths.h"

#include <filesystem>
#include <system_error>

#include "engine/base/run_outputs.h"
#include "graph/base/text.h"

namespace tessera {
namespace {

namespace fs = std::filesystem;

bool is_same(const fs::path& a, const fs::path& b) {
  std::error_code ignored;
  return fs::equivalent(a, b, ignored);
}

}  // namespace

Status check_not_read(const std::vector<std::string>& read, const std::string& out, const std::string& resumed) {
  for (const std::string& path : read) {
    const fs::path parent = fs::path(path).parent_path();
    if (!is_same(path, out) && !is_same(parent.empty() ? "." : parent, out)) continue;
    if (is_result_of_run(out, resumed)) return {};
    return Status(StatusCode::kInvalidArgument,
                  format("{}: is where the model is read from, which would be lost; give another name to write",
                         out));
  }
  return {};
}

}  // namespace tessera

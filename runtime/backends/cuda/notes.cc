#include "runtime/backends/cuda/notes.h"

#include <mutex>
#include <utility>

namespace tessera::cuda {

namespace {
std::mutex g_mutex;
std::vector<std::string> g_lines;
}  // namespace

void note(std::string line) {
  const std::lock_guard lock(g_mutex);
  g_lines.push_back(std::move(line));
}

std::vector<std::string> take_notes() {
  const std::lock_guard lock(g_mutex);
  return std::exchange(g_lines, {});
}

}  // namespace tessera::cuda

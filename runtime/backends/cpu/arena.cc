#include "runtime/backends/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "graph/base/text.h"

namespace tessera::cpu {

namespace {

constexpr uintptr_t kAlignment = 64;
constexpr int64_t kHugePageBytes = int64_t{2} << 20;

uintptr_t round_up(uintptr_t value, uintptr_t unit) { return (value + unit - 1) / unit * unit; }

// The mapping is [guard page | body | guard page]; the memory starts in the first page of the body, which is
// how arena_free finds the mapping again.
struct Layout {
  explicit Layout(int64_t bytes)
      : page(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE))),
        used(round_up(static_cast<uintptr_t>(bytes > 0 ? bytes : 1), kAlignment)),
        body(round_up(used, page)) {}
  uintptr_t page, used, body;
  uintptr_t total() const { return body + 2 * page; }
};

}  // namespace

Result<void*> arena_alloc(int64_t bytes, bool at_end) {
  if (bytes < 0 || bytes > (int64_t{1} << 46))
    return Status(StatusCode::kInvalidArgument, format("{} bytes is no arena size", bytes));
  const Layout layout(bytes);
  void* mapping = mmap(nullptr, layout.total(), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return Status(StatusCode::kOutOfMemory,
                  format("cannot map {}: {}", bytes_text(bytes), std::strerror(errno)));
  char* body = static_cast<char*>(mapping) + layout.page;
  if (mprotect(body, layout.body, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(mapping, layout.total());
    return Status(StatusCode::kOutOfMemory,
                  format("cannot map {}: {}", bytes_text(bytes), std::strerror(error)));
  }
  // Fewer TLB misses in large arenas; a refusal changes nothing else.
  if (bytes >= 4 * kHugePageBytes) (void)madvise(body, layout.body, MADV_HUGEPAGE);
  return static_cast<void*>(at_end ? body + (layout.body - layout.used) : body);
}

void arena_free(void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  const Layout layout(bytes);
  const uintptr_t body = reinterpret_cast<uintptr_t>(memory) / layout.page * layout.page;
  munmap(reinterpret_cast<void*>(body - layout.page), layout.total());
}

}  // namespace tessera::cpu

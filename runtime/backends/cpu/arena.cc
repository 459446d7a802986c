#include "runtime/backends/cpu/arena.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "graph/base/text.h"

namespace tessera::cpu {

namespace {

constexpr uintptr_t kAlignment = 64;
constexpr uintptr_t kHugePageBytes = uintptr_t{2} << 20;

uintptr_t round_up(uintptr_t value, uintptr_t unit) { return (value + unit - 1) / unit * unit; }

// The mapping is [guard page | body | guard page]. The memory starts in the first page of the body (a huge
// page where the body holds one), which is how arena_free finds the mapping again.
// Bodies that hold huge pages begin at a multiple of one, and end at one where that adds an eighth at most:
// the same arena then takes the same time at any address.
struct Layout {
  explicit Layout(int64_t bytes)
      : page(static_cast<uintptr_t>(sysconf(_SC_PAGESIZE))),
        used(round_up(static_cast<uintptr_t>(bytes > 0 ? bytes : 1), kAlignment)),
        body(round_up(used, page)),
        unit(used < kHugePageBytes ? page : kHugePageBytes) {
    const uintptr_t whole = round_up(used, unit);
    if (whole - used <= used / 8) body = whole;
  }
  uintptr_t page, used, body;
  uintptr_t unit;  // the body begins at a multiple of it
  uintptr_t with_guards() const { return body + 2 * page; }
};

bool brings_memory(const tsr_host_api& host) {
  return host.struct_size >= offsetof(tsr_host_api, arena_free) + sizeof(host.arena_free) &&
         host.arena_allocate != nullptr;
}

}  // namespace

Result<void*> arena_alloc(const tsr_host_api& host, int64_t bytes, bool at_end) {
  if (bytes < 0 || bytes > (int64_t{1} << 46))
    return Status(StatusCode::kInvalidArgument, format("{} bytes is no arena size", bytes));
  const Layout layout(bytes);
  if (brings_memory(host)) {
    void* memory = host.arena_allocate(host.host, layout.used, layout.page);
    if (memory == nullptr)
      return Status(StatusCode::kOutOfMemory, format("the program's allocator has no {}", bytes_text(bytes)));
    if (reinterpret_cast<uintptr_t>(memory) % layout.page != 0) {
      host.arena_free(host.host, memory, layout.used);
      return Status(StatusCode::kInvalidArgument,
                    format("the program's allocator returned memory that is not aligned to {}", layout.page));
    }
    return std::memset(memory, 0, layout.used);
  }
  const uintptr_t spare = layout.unit == layout.page ? 0 : layout.unit;  // room to move to a multiple of it
  void* mapping = mmap(nullptr, layout.with_guards() + spare, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return Status(StatusCode::kOutOfMemory,
                  format("cannot map {}: {}", bytes_text(bytes), std::strerror(errno)));
  const uintptr_t begin = reinterpret_cast<uintptr_t>(mapping), end = begin + layout.with_guards() + spare;
  const uintptr_t first = round_up(begin + layout.page, layout.unit);
  // Give back the surplus on both sides, so that [guard | body | guard] remains.
  if (const uintptr_t lead = first - layout.page - begin; lead > 0) munmap(mapping, lead);
  if (const uintptr_t tail = first + layout.body + layout.page; tail < end)
    munmap(reinterpret_cast<void*>(tail), end - tail);
  char* body = reinterpret_cast<char*>(first);
  if (mprotect(body, layout.body, PROT_READ | PROT_WRITE) != 0) {
    const int error = errno;
    munmap(body - layout.page, layout.with_guards());
    return Status(StatusCode::kOutOfMemory,
                  format("cannot map {}: {}", bytes_text(bytes), std::strerror(error)));
  }
  // Huge pages mean fewer TLB misses in large arenas; a refusal changes nothing else.
  if (spare > 0) (void)madvise(body, layout.body, MADV_HUGEPAGE);
  return static_cast<void*>(at_end ? body + (layout.body - layout.used) : body);
}

void arena_free(const tsr_host_api& host, void* memory, int64_t bytes) {
  if (memory == nullptr) return;
  const Layout layout(bytes);
  if (brings_memory(host)) return host.arena_free(host.host, memory, layout.used);
  const uintptr_t body = reinterpret_cast<uintptr_t>(memory) / layout.unit * layout.unit;
  munmap(reinterpret_cast<void*>(body - layout.page), layout.with_guards());
}

}  // namespace tessera::cpu

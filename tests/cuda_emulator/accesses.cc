#include "tests/cuda_emulator/accesses.h"

#include <dlfcn.h>
#include <link.h>
#include <sys/mman.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/cuda_emulator/runtime.h"

namespace emulator {

namespace {

constexpr uintptr_t kPage = 4096;
constexpr uint32_t kAtomic = 1u << 31;

// By number of the moment; 0 is none. Of the writer kAtomic says how.
struct Moment {
  uint32_t thread, barriers, warp_syncs;
};
struct Cell {
  uint32_t writer = 0, reader = 0, other_reader = 0;
  bool operator==(const Cell&) const = default;
};
struct Page {
  Cell cells[kPage];
};
using Pages = std::unordered_map<uintptr_t, std::unique_ptr<Page>>;  // null: of no interest

struct Range {
  uintptr_t begin = 0, end = 0;
  bool holds(uintptr_t at) const { return at >= begin && at < end; }
};

// A host thread runs one launch at a time, and one block of it.
struct State {
  bool running = false;
  const char* kernel = "";
  Actor* actor = nullptr;
  Range static_shared, dynamic_shared;
  // Older moments than the launch's, or in shared memory the block's, are over.
  uint32_t of_launch = 1, of_block = 1, rounds = 0;
  std::vector<Moment> moments;  // of this block, from of_block on
  Pages shared;
  struct Known {
    uintptr_t key = 0;  // of the page, and whether it is shared memory
    Page* at = nullptr;
  };
  Known lately[64];
};
// Every access asks for it, so it is a pointer, which takes no constructor to look at; null before the
// thread's first launch.
constinit thread_local State* t_state = nullptr;
State& make_state() {
  static thread_local struct Owner {
    Owner() { t_state = new State; }
    ~Owner() {
      delete t_state;
      t_state = nullptr;
    }
  } owner;
  return *t_state;
}

// Moments are numbered through all launches of all threads, since they meet in device memory. Numbers run out
// once in a long while: then all is forgotten, and a round begins. All launches run under the runtime's
// mutex, as do frees.
struct Numbers {
  uint32_t next = 1, rounds = 0;
};
Numbers g_numbers;
Pages& device_pages() {
  static Pages all;
  return all;
}

// The address of this thread's static shared memory: with all thread-local variables of this library.
Range thread_locals() {
  Range range;
  dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* out) {
        Dl_info self{};
        (void)dladdr(reinterpret_cast<void*>(&thread_locals), &self);
        if (reinterpret_cast<void*>(info->dlpi_addr) != self.dli_fbase || info->dlpi_tls_data == nullptr)
          return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i)
          if (info->dlpi_phdr[i].p_type == PT_TLS) {
            const auto begin = reinterpret_cast<uintptr_t>(info->dlpi_tls_data);
            *static_cast<Range*>(out) = {begin, begin + info->dlpi_phdr[i].p_memsz};
          }
        return 1;
      },
      &range);
  return range;
}

Page* page_of(State& state, uintptr_t at, bool is_shared) {
  const uintptr_t page = at / kPage;
  // Shared memory is a thread's own variables, which may share a page with the heap.
  const uintptr_t key = 2 * page + (is_shared ? 1 : 0);
  State::Known& known = state.lately[key % std::size(state.lately)];
  if (known.key == key) return known.at;
  known.key = key;
  Pages& pages = is_shared ? state.shared : device_pages();
  const auto [found, is_new] = pages.try_emplace(page);
  if (is_new && (is_shared || is_device_memory(reinterpret_cast<const void*>(at))))
    found->second = std::make_unique<Page>();
  return known.at = found->second.get();
}

enum class Kind { kRead, kWrite, kAtomic };

const char* text(Kind kind) {
  return kind == Kind::kRead ? "reads" : kind == Kind::kWrite ? "writes" : "adds to";
}

class Access {
 public:
  Access(State& state, Kind kind, const void* from) : state_(state), kind_(kind), from_(from) {}

  void check(Cell& cell, bool is_shared) {
    const uint32_t oldest = is_shared ? state_.of_block : state_.of_launch;
    const uint32_t writer = cell.writer & ~kAtomic, now = state_.actor->moment;
    const bool written = writer >= oldest;
    if (written && !(kind_ == Kind::kAtomic && (cell.writer & kAtomic) != 0) && !before(writer))
      complain(writer, "wrote");
    if (kind_ == Kind::kRead) {
      if (is_shared && !written) complain_unwritten();
      if (cell.reader < oldest || (own_block(cell.reader) && before(cell.reader)))
        cell.reader = now;
      else if (cell.other_reader < state_.of_block || before(cell.other_reader) ||
               warp_of(cell.other_reader) == warp_of(cell.reader))
        cell.other_reader = now;
      return;
    }
    for (const uint32_t reader : {cell.reader, cell.other_reader})
      if (reader >= oldest && !before(reader)) complain(reader, "read");
    cell.writer = kind_ == Kind::kAtomic ? now | kAtomic : now;
  }

 private:
  bool own_block(uint32_t moment) const { return moment >= state_.of_block; }
  const Moment& get(uint32_t moment) const { return state_.moments[moment - state_.of_block]; }
  uint32_t warp_of(uint32_t moment) const { return own_block(moment) ? get(moment).thread / 32 : ~0u; }
  // Whether what was done then is ordered before what is done now.
  bool before(uint32_t moment) const {
    if (!own_block(moment)) return false;
    const Moment& then = get(moment);
    const Actor& now = *state_.actor;
    return then.thread == now.thread || then.barriers < now.barriers ||
           (then.thread / 32 == now.thread / 32 && then.warp_syncs < now.warp_syncs);
  }
  void complain(uint32_t moment, const char* did) const {
    char what[160];
    if (own_block(moment))
      std::snprintf(what, sizeof(what), "thread %u %s what thread %u %s, and nothing orders them",
                    state_.actor->thread, text(kind_), get(moment).thread, did);
    else
      std::snprintf(what, sizeof(what), "thread %u %s what another block %s, and nothing orders them",
                    state_.actor->thread, text(kind_), did);
    refuse(what, from_);
  }
  void complain_unwritten() const {
    char what[160];
    std::snprintf(what, sizeof(what), "thread %u reads shared memory that nobody wrote",
                  state_.actor->thread);
    refuse(what, from_);
  }

  State& state_;
  Kind kind_;
  const void* from_;
};

__attribute__((noinline)) void touch_memory(State& state, Kind kind, uintptr_t at, size_t bytes,
                                            const void* from) {
  const bool is_shared = state.static_shared.holds(at) || state.dynamic_shared.holds(at);
  Access access(state, kind, from);
  for (const uintptr_t end = at + bytes; at < end;) {
    const uintptr_t next = at / kPage * kPage + kPage;
    Page* page = page_of(state, at, is_shared);
    if (page == nullptr) {
      at = next;
      continue;
    }
    if (!is_shared && !state.actor->has_waited)
      refuse("a thread touches memory before it waited for the launch before", from);
    if (Actor& actor = *state.actor; actor.moment == 0) {
      actor.moment = g_numbers.next++;
      state.moments.push_back({actor.thread, actor.barriers, actor.warp_syncs});
    }
    // Neighbours mostly have one past.
    Cell past, present;
    bool is_known = false;
    for (const uintptr_t stop = end < next ? end : next; at < stop; ++at) {
      Cell& cell = page->cells[at % kPage];
      if (!is_known || !(cell == past)) {
        past = cell;
        access.check(cell, is_shared);
        present = cell;
        is_known = true;
      }
      cell = present;
    }
  }
}

inline void touch(Kind kind, const void* at, size_t bytes, const void* from) {
  State* const state = t_state;
  const auto address = reinterpret_cast<uintptr_t>(at);
  if (state == nullptr || !state->running) return;
  if (address >= state->actor->stack && address < state->actor->stack_end) return;
  touch_memory(*state, kind, address, bytes, from);
}

bool goes_on() {
  static const bool asked = std::getenv("TESSERA_EMULATOR_GO_ON") != nullptr;
  return asked;
}

}  // namespace

void refuse(const char* what, const void* from) {
  Dl_info module{};
  (void)dladdr(from, &module);
  char place[256];
  std::snprintf(
      place, sizeof(place), "%s, %s+0x%zx", t_state != nullptr ? t_state->kernel : "?",
      module.dli_fname != nullptr ? module.dli_fname : "?",
      static_cast<size_t>(static_cast<const char*>(from) - static_cast<const char*>(module.dli_fbase)));
  static std::set<std::string> said;
  if (said.insert(place).second) std::fprintf(stderr, "cuda emulator: %s (%s)\n", what, place);
  if (!goes_on()) std::abort();
}

void begin_launch(const char* kernel) {
  State& state = make_state();
  if (g_numbers.next > kAtomic / 2) {
    device_pages().clear();
    g_numbers = {1, g_numbers.rounds + 1};
  }
  if (state.rounds != g_numbers.rounds) state.shared.clear();
  state.rounds = g_numbers.rounds;
  state.running = true;
  state.kernel = kernel;
  state.of_launch = state.of_block = g_numbers.next;
  for (State::Known& known : state.lately) known = {};
  if (state.static_shared.end == 0) state.static_shared = thread_locals();
}
void begin_block() {
  State& state = *t_state;
  state.of_block = g_numbers.next;
  state.moments.clear();
}
void end_launch() { t_state->running = false; }

void go_on(Actor& actor) { t_state->actor = &actor; }

unsigned char* place_dynamic_shared(size_t bytes) {
  static thread_local struct Memory {
    size_t mapped = 0;
    unsigned char* begin = nullptr;
    ~Memory() {
      if (begin != nullptr) munmap(begin, mapped + kPage);
    }
  } memory;
  constexpr size_t kMost = 57 * kPage;  // 228 KiB
  if (memory.begin == nullptr) {
    void* made = mmap(nullptr, kMost + kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (made == MAP_FAILED || mprotect(made, kMost, PROT_READ | PROT_WRITE) != 0) std::abort();
    memory.begin = static_cast<unsigned char*>(made);
    memory.mapped = kMost;
  }
  unsigned char* at = memory.begin + (kMost - (bytes + 15) / 16 * 16);
  std::memset(at, 0xff, bytes);  // NaN where nobody wrote
  const auto begin = reinterpret_cast<uintptr_t>(at);
  t_state->dynamic_shared = {begin, begin + bytes};
  return at;
}

void note_write(const void* at, size_t bytes) { touch(Kind::kWrite, at, bytes, __builtin_return_address(0)); }
void note_read(const void* at, size_t bytes) { touch(Kind::kRead, at, bytes, __builtin_return_address(0)); }
void note_atomic(const void* at, size_t bytes) {
  touch(Kind::kAtomic, at, bytes, __builtin_return_address(0));
}

void check_fetch(const void* at) {
  if (!is_device_memory(at))
    refuse("a line is fetched that lies in no allocation", __builtin_return_address(0));
}

void forget(const void* at, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(at);
  for (uintptr_t page = begin / kPage; page * kPage < begin + bytes; ++page) device_pages().erase(page);
}

}  // namespace emulator

// Functions called by instrumented code. Host code of the same files calls them too; it runs no launch.
#define TSR_ACCESS(name, kind, bytes)                                              \
  extern "C" void __tsan_##name(void* at) {                                        \
    emulator::touch(emulator::Kind::kind, at, bytes, __builtin_return_address(0)); \
  }
#define TSR_ACCESSES(bytes)                       \
  TSR_ACCESS(read##bytes, kRead, bytes)           \
  TSR_ACCESS(write##bytes, kWrite, bytes)         \
  TSR_ACCESS(unaligned_read##bytes, kRead, bytes) \
  TSR_ACCESS(unaligned_write##bytes, kWrite, bytes)
TSR_ACCESSES(1)
TSR_ACCESSES(2)
TSR_ACCESSES(4)
TSR_ACCESSES(8)
TSR_ACCESSES(16)
extern "C" {
void __tsan_read_range(void* at, size_t bytes) {
  emulator::touch(emulator::Kind::kRead, at, bytes, __builtin_return_address(0));
}
void __tsan_write_range(void* at, size_t bytes) {
  emulator::touch(emulator::Kind::kWrite, at, bytes, __builtin_return_address(0));
}
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_vptr_read(void**) {}
// Counters of the host's shared pointers, and guards of its static variables.
char __tsan_atomic8_load(const volatile char* at, int) { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }
int __tsan_atomic32_fetch_add(volatile int* at, int value, int) {
  return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}

// In the compiler's layout: a pointer that is no multiple of its type's alignment.
struct Mismatch {
  struct {
    const char* file;
    uint32_t line, column;
  } place;
  const struct {
    uint16_t kind, info;
    char name[1];
  } * type;
  unsigned char log_alignment, kind;
};
void __ubsan_handle_type_mismatch_v1(const Mismatch* what, uintptr_t at) {
  char text[512];
  std::snprintf(text, sizeof(text), "%s:%u: address %zx of %s, which lies at multiples of %d",
                what->place.file, what->place.line, static_cast<size_t>(at), what->type->name,
                1 << what->log_alignment);
  emulator::refuse(text, __builtin_return_address(0));
}
}

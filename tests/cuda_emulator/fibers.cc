// Blocks of a kernel, one after the other; the threads of a block are fibers of the calling thread.
#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>
#include <vector>

#include "tests/cuda_emulator/accesses.h"
#include "tests/cuda_emulator/runtime.h"

namespace emulator {

namespace {

constexpr size_t kStackBytes = size_t{128} << 10;
constexpr int kWarp = 32;
constexpr size_t kLaneBytes = 64;

[[noreturn]] void fail(const char* what, const Position& at);

struct Fiber {
  void* stack_pointer = nullptr;
  Position at{};
  bool done = false;
  int barrier_seen = -1;                              // waits while the block's count is this
  int exchange_seen = -1;                             // waits while the warp's count is this
  std::vector<std::pair<void*, const void*>> copies;  // under way, 16 bytes each
  Actor actor;
};

struct Warp {
  int arrived = 0, count = 0;
  alignas(16) unsigned char slots[2][kWarp * kLaneBytes];
  size_t bytes = 0;
};

struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  unsigned char* shared = nullptr;
  int alive = 0, arrived = 0, barriers = 0;
  bool has_bounds = false;
  std::vector<const void*> static_shared;  // arrays that a thread of the launch has come to
  size_t static_bytes = 0;
  const Config* config = nullptr;
  const std::function<void()>* body = nullptr;
  const char* kernel = "";
  Fiber* running = nullptr;
  void* scheduler = nullptr;  // its stack pointer
};
thread_local Block* t_block = nullptr;

void fail(const char* what, const Position& at) {
  std::fprintf(stderr, "cuda emulator: %s: %s (block %u %u, thread %u of %u)\n", t_block->kernel, what,
               at.block.x, at.block.y, at.thread.x, at.threads.x);
  std::abort();
}

// rdi: where to leave this stack pointer, rsi: the one to go on with.
extern "C" void emulator_switch(void** from, void* to);
asm(R"(
.globl emulator_switch
.hidden emulator_switch
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

void yield() {
  Block& block = *t_block;
  emulator_switch(&block.running->stack_pointer, block.scheduler);
}

void release_barrier(Block& block) {
  block.arrived = 0;
  ++block.barriers;
}

extern "C" [[noreturn]] void emulator_entry() {
  Block& block = *t_block;
  (*block.body)();
  if (!block.running->actor.has_waited)
    fail("a thread ends that never waited for the launch before", block.running->at);
  block.running->done = true;
  // Threads that have left count no more.
  if (--block.alive > 0 && block.arrived == block.alive) release_barrier(block);
  yield();
  std::abort();
}

// Stacks of a host thread, kept for the next block.
class Stacks {
 public:
  ~Stacks() {
    for (void* stack : stacks_) munmap(stack, kStackBytes);
  }
  void* top(size_t i) {
    while (stacks_.size() <= i) {
      void* made = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (made == MAP_FAILED) std::abort();
      stacks_.push_back(made);
    }
    return static_cast<char*>(stacks_[i]) + kStackBytes;
  }

 private:
  std::vector<void*> stacks_;
};
thread_local Stacks t_stacks;

uint64_t seed_of_environment() {
  const char* text = std::getenv("TESSERA_EMULATOR_SEED");
  return text != nullptr ? std::strtoull(text, nullptr, 10) : 1;
}
uint64_t next_random() {
  thread_local uint64_t state = seed_of_environment() * 0x9E3779B97F4A7C15u + 1;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

bool can_run(const Block& block, size_t i) {
  const Fiber& fiber = block.fibers[i];
  return !fiber.done && (fiber.barrier_seen < 0 || block.barriers != fiber.barrier_seen) &&
         (fiber.exchange_seen < 0 || block.warps[i / kWarp].count != fiber.exchange_seen);
}

void run(Block& block) {
  const size_t warps = block.warps.size(), threads = block.fibers.size();
  while (block.alive > 0) {
    bool moved = false;
    const uint64_t draw = next_random();
    const size_t first = draw % warps;
    const bool backwards = (draw >> 40) % 2 != 0;
    for (size_t w = 0; w < warps; ++w) {
      const size_t warp = (first + (backwards ? warps - w : w)) % warps;
      // A warp goes on until it waits for others, as it may on a GPU.
      for (bool again = true; again;) {
        again = false;
        for (size_t lane = 0; lane < kWarp; ++lane) {
          const size_t i = warp * kWarp + (backwards ? kWarp - 1 - lane : lane);
          if (i >= threads || !can_run(block, i)) continue;
          Fiber& fiber = block.fibers[i];
          fiber.barrier_seen = fiber.exchange_seen = -1;
          block.running = &fiber;
          go_on(fiber.actor);
          emulator_switch(&block.scheduler, fiber.stack_pointer);
          moved = again = true;
        }
      }
    }
    if (!moved) {
      for (const Fiber& fiber : block.fibers)
        if (!fiber.done)
          fail(fiber.barrier_seen >= 0 ? "a thread waits at __syncthreads for threads that do not come"
                                       : "a lane waits in a shuffle for lanes that do not come",
               fiber.at);
    }
  }
}

void start(Block& block, const Config& config, uint3 at) {
  const size_t threads = size_t{config.threads.x} * config.threads.y * config.threads.z;
  block.fibers.assign(threads, Fiber{});
  block.warps.resize((threads + kWarp - 1) / kWarp);
  for (Warp& warp : block.warps) warp.arrived = warp.count = 0;
  block.alive = static_cast<int>(threads);
  block.arrived = block.barriers = 0;
  block.shared = place_dynamic_shared(config.shared_bytes);
  begin_block();
  for (size_t i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    const auto rank = static_cast<unsigned>(i);
    fiber.at.block = at;
    fiber.at.blocks = config.blocks;
    fiber.at.threads = config.threads;
    fiber.at.thread = {rank % config.threads.x, rank / config.threads.x % config.threads.y,
                       rank / config.threads.x / config.threads.y};
    fiber.actor.thread = rank;
    fiber.actor.has_waited = !config.overlaps;
    fiber.actor.stack_end = reinterpret_cast<uintptr_t>(t_stacks.top(i));
    fiber.actor.stack = fiber.actor.stack_end - kStackBytes;
    // The state of a switched-away fiber, with the stack aligned as at a function's entry.
    void** top = static_cast<void**>(t_stacks.top(i));
    *--top = nullptr;
    *--top = reinterpret_cast<void*>(&emulator_entry);
    for (int pushed = 0; pushed < 6; ++pushed) *--top = nullptr;
    fiber.stack_pointer = top;
  }
}

}  // namespace

void check_bounds(unsigned threads, unsigned) {
  Block& block = *t_block;
  block.has_bounds = true;
  if (block.fibers.size() > threads)
    fail("a block of more threads than its launch bounds", block.running->at);
}

// Compilers give a kernel all arrays of the functions in it, whether or not a thread comes to them.
void note_static_shared(const void* array, size_t bytes, size_t alignment) {
  Block& block = *t_block;
  if (std::ranges::find(block.static_shared, array) != block.static_shared.end()) return;
  block.static_shared.push_back(array);
  block.static_bytes = (block.static_bytes + alignment - 1) / alignment * alignment + bytes;
  if (block.static_bytes > kMostUnaskedShared)
    fail("more static shared memory than 48 KiB", block.running->at);
  if (block.config->set_aside >= 0 &&
      block.static_bytes + static_cast<size_t>(block.config->set_aside) > most_shared())
    fail("static shared memory beside dynamic that was set aside up to the device's limit",
         block.running->at);
  if (block.config->set_aside < 0 && block.static_bytes + block.config->shared_bytes > kMostUnaskedShared)
    fail("static and dynamic shared memory beyond 48 KiB, which nobody asked for", block.running->at);
}

void wait_for_previous() { t_block->running->actor.has_waited = true; }

const Position& position() { return t_block->running->at; }

void barrier() {
  Block& block = *t_block;
  if (++block.arrived == block.alive) {
    release_barrier(block);
  } else {
    block.running->barrier_seen = block.barriers;
    yield();
  }
  block.running->actor.pass(block.running->actor.barriers);
}

void warp_barrier() {
  const char nothing = 0;
  (void)exchange_all(&nothing, 1);
  Actor& actor = t_block->running->actor;
  actor.pass(actor.warp_syncs);
}

const unsigned char* exchange_all(const void* mine, size_t bytes) {
  Block& block = *t_block;
  const auto rank = static_cast<size_t>(block.running - block.fibers.data());
  Warp& warp = block.warps[rank / kWarp];
  if (bytes > kLaneBytes) fail("a value of more than 64 bytes in a shuffle", block.running->at);
  if (warp.arrived > 0 && warp.bytes != bytes) fail("lanes meet in different shuffles", block.running->at);
  warp.bytes = bytes;
  unsigned char* slots = warp.slots[warp.count % 2];
  std::memcpy(slots + rank % kWarp * kLaneBytes, mine, bytes);
  const size_t begin = rank / kWarp * kWarp;
  const size_t lanes = std::min<size_t>(kWarp, block.fibers.size() - begin);
  if (static_cast<size_t>(++warp.arrived) == lanes) {
    warp.arrived = 0;
    ++warp.count;
  } else {
    block.running->exchange_seen = warp.count;
    yield();
  }
  return slots;
}

void check_aligned(const void* at) {
  if (reinterpret_cast<uintptr_t>(at) % 16 != 0) fail("16 bytes at an odd address", t_block->running->at);
}

// It may arrive from now on, and has when it was waited for.
void copy_async(void* to, const void* from) {
  check_aligned(to);
  check_aligned(from);
  note_write(to, 16);
  if (from != nullptr) note_read(from, 16);
  t_block->running->copies.emplace_back(to, from);
}
void copy_async_wait() {
  for (const auto& [to, from] : t_block->running->copies) {
    note_write(to, 16);
    from != nullptr ? std::memcpy(to, from, 16) : std::memset(to, 0, 16);
  }
  t_block->running->copies.clear();
}

const void* exchange(const void* mine, size_t bytes, int lane) {
  return exchange_all(mine, bytes) + static_cast<size_t>(lane) * kLaneBytes;
}

unsigned char* dynamic_shared() { return t_block->shared; }

void run_kernel(const Config& config, const std::function<void()>& body) {
  Block block;
  block.body = &body;
  t_block = &block;
  block.kernel = config.kernel;
  block.config = &config;
  begin_launch(config.kernel);
  for (unsigned z = 0; z < config.blocks.z; ++z)
    for (unsigned y = 0; y < config.blocks.y; ++y)
      for (unsigned x = 0; x < config.blocks.x; ++x) {
        start(block, config, {x, y, z});
        run(block);
        // Threads may take 255 registers of the 65536 that there are.
        if (!block.has_bounds && block.fibers.size() > 256)
          fail("a block of more than 256 threads, of a kernel without launch bounds", block.fibers[0].at);
      }
  end_launch();
  t_block = nullptr;
}

}  // namespace emulator

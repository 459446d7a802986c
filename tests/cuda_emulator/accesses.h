// What the threads of a launch do to memory, byte by byte: translated sources are compiled with the calls
// that a race detector wants (-fsanitize=thread), and the emulator answers them. Two accesses to one byte,
// one of them a write, have to be ordered: by a barrier of the block, or by __syncwarp within a warp.
// Shuffles order nothing, nor do blocks order one another. Shared memory is read by nobody before somebody
// wrote it. A launch that may overlap with the one before it waits for that before it touches the device's
// memory.
//
// A launch that breaks this ends the process, or with TESSERA_EMULATOR_GO_ON=1 says so once and goes on.
// Its location: addr2line -Cfie libtessera_cuda.so on the printed address, of a build with -g.
#pragma once

#include <cstddef>
#include <cstdint>

namespace emulator {

// A thread of the block that runs.
struct Actor {
  uint32_t thread = 0, barriers = 0, warp_syncs = 0;  // that it has passed: what it is ordered after
  uint32_t moment = 0;                                // what it does between two of them; 0: nothing yet
  uintptr_t stack = 0, stack_end = 0;                 // its own
  bool has_waited = true;                             // for what was launched before

  void pass(uint32_t& count) {
    ++count;
    moment = 0;
  }
};

void begin_launch(const char* kernel);
void begin_block();
void end_launch();
void go_on(Actor& actor);  // until another does
// Dynamic shared memory of the block: what lies beyond cannot be touched.
unsigned char* place_dynamic_shared(size_t bytes);

// Accesses of the running thread, noted by code that is not instrumented.
void note_write(const void* at, size_t bytes);
void note_read(const void* at, size_t bytes);
void note_atomic(const void* at, size_t bytes);
// Memory that was freed is no longer known.
void forget(const void* at, size_t bytes);

// Ends the process, or says it once and returns where that was asked for. `from`: an address in the code.
void refuse(const char* what, const void* from);

}  // namespace emulator

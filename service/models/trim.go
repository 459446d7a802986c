package models

/*
#include <malloc.h>

// glibc gives each thread that contends an arena, of which freed memory in the middle stays, and raises its threshold of
// mmap with each block that is freed: after large bodies it would keep what they took. Other C libraries do neither.
static void bound_malloc(int arenas, int mmap_bytes, int trim_bytes) {
#ifdef __GLIBC__
	mallopt(M_ARENA_MAX, arenas);
	mallopt(M_MMAP_THRESHOLD, mmap_bytes);
	mallopt(M_TRIM_THRESHOLD, trim_bytes);
#endif
}

static void trim_malloc(void) {
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}
*/
import "C"

import "runtime/debug"

// Bounds of the memory that malloc keeps free: arenas, blocks that are returned when they are freed, and the free end of
// the heap that is.
const (
	mallocArenas = 2
	mmapBytes    = 1 << 20
	trimBytes    = 4 << 20
)

// BoundFreeMemory bounds the memory that the library's allocator keeps free. It is called once, before the library is used.
func BoundFreeMemory() { C.bound_malloc(mallocArenas, mmapBytes, trimBytes) }

// Trim gives the memory that Go and the library's allocator keep free back to the system.
func Trim() {
	debug.FreeOSMemory()
	C.trim_malloc()
}

package models

// #include <malloc.h>
import "C"

import "runtime/debug"

// Trim gives the memory that Go and the library's allocator keep free back to the system.
func Trim() {
	debug.FreeOSMemory()
	C.malloc_trim(0)
}

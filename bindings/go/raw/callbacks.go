package raw

/*
#include <stddef.h>
#include <stdint.h>

uintptr_t tessera_go_tensor_borrow(int32_t dtype, int32_t rank, const int64_t* dims, const void* data, size_t bytes,
                                   uintptr_t context, uintptr_t* out);
uintptr_t tessera_go_model_load_bytes(const void* data, size_t size, uintptr_t context, uintptr_t* out);
uintptr_t tessera_go_model_load_reader(int64_t size, uintptr_t context, uintptr_t* out);
void* tessera_go_memory_new(size_t size);
void tessera_go_memory_free(void* memory);
*/
import "C"

import (
	"runtime/cgo"
	"unsafe"
)

// context is what C holds of Go until it calls release.
type context struct {
	readAt  func(p []byte, offset int64) error
	release func()
	memory  []byte // that C reads
}

// isolated runs a function of the program on a goroutine of its own: neither a panic nor runtime.Goexit may unwind C. False
// where it did not return.
func isolated(function func()) (returned bool) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { _ = recover() }()
		function()
		returned = true
	}()
	<-done
	return returned
}

//export tesseraGoRelease
func tesseraGoRelease(handle C.uintptr_t) {
	held := cgo.Handle(handle)
	release := held.Value().(*context).release
	held.Delete()
	isolated(release) // C has nobody to tell of a panic
}

//export tesseraGoReadAt
func tesseraGoReadAt(handle C.uintptr_t, offset C.int64_t, out unsafe.Pointer, bytes C.size_t) C.int32_t {
	held := cgo.Handle(handle).Value().(*context)
	var err error
	read := func() { err = held.readAt(unsafe.Slice((*byte)(out), int(bytes)), int64(offset)) }
	if !isolated(read) || err != nil {
		return 1
	}
	return 0
}

func hold(value *context) C.uintptr_t { return C.uintptr_t(cgo.NewHandle(value)) }

func result(out *uintptr) *C.uintptr_t { return (*C.uintptr_t)(unsafe.Pointer(out)) }

func address(data []byte) unsafe.Pointer {
	if len(data) == 0 {
		return nil
	}
	return unsafe.Pointer(&data[0])
}

// Tsr_raw_tensor_borrow is tsr_tensor_borrow, which calls release exactly once.
func Tsr_raw_tensor_borrow(dtype int32, dims []int64, data []byte, release func(), out *uintptr) uintptr {
	var extents *C.int64_t
	if len(dims) > 0 {
		extents = (*C.int64_t)(unsafe.Pointer(&dims[0]))
	}
	return uintptr(C.tessera_go_tensor_borrow(C.int32_t(dtype), C.int32_t(len(dims)), extents, address(data), C.size_t(len(data)),
		hold(&context{release: release, memory: data}), result(out)))
}

// Tsr_raw_model_load_bytes is tsr_model_load_bytes, which calls release exactly once.
func Tsr_raw_model_load_bytes(data []byte, release func(), out *uintptr) uintptr {
	return uintptr(C.tessera_go_model_load_bytes(address(data), C.size_t(len(data)),
		hold(&context{release: release, memory: data}), result(out)))
}

// Tsr_raw_model_load_reader is tsr_model_load_reader. readAt fills all of p.
func Tsr_raw_model_load_reader(size int64, readAt func(p []byte, offset int64) error, out *uintptr) uintptr {
	return uintptr(C.tessera_go_model_load_reader(C.int64_t(size), hold(&context{readAt: readAt, release: func() {}}), result(out)))
}

// Tsr_raw_memory_new is memory of C, zeroed; nil where there is none.
func Tsr_raw_memory_new(size uint64) unsafe.Pointer { return C.tessera_go_memory_new(C.size_t(size)) }

// Tsr_raw_memory_free frees it.
func Tsr_raw_memory_free(memory unsafe.Pointer) { C.tessera_go_memory_free(memory) }

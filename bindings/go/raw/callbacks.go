package raw

/*
#include <stddef.h>
#include <stdint.h>

uintptr_t tessera_go_tensor_borrow(int32_t dtype, int32_t rank, const int64_t* dims, const void* data, size_t bytes,
                                   uintptr_t context, uintptr_t* out);
uintptr_t tessera_go_model_load_bytes(const void* data, size_t size, uintptr_t context, uintptr_t* out);
uintptr_t tessera_go_model_load_reader(int64_t size, uintptr_t context, uintptr_t* out);
uintptr_t tessera_go_runtime_set_log(uintptr_t runtime, uintptr_t context);
uintptr_t tessera_go_runtime_new_with_hooks(uintptr_t options, uintptr_t context, int32_t has, uintptr_t* out);
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

	log        func(level int32, text string)
	allocate   func(bytes, alignment uintptr) unsafe.Pointer
	deallocate func(memory unsafe.Pointer, bytes uintptr)
	started    func(role string, number int32)
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
	if release != nil {
		isolated(release) // C has nobody to tell of a panic
	}
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

//export tesseraGoLog
func tesseraGoLog(handle C.uintptr_t, level C.int32_t, text *C.char) {
	log, copied := cgo.Handle(handle).Value().(*context).log, C.GoString(text)
	isolated(func() { log(int32(level), copied) })
}

//export tesseraGoAllocate
func tesseraGoAllocate(handle C.uintptr_t, bytes, alignment C.size_t) (memory unsafe.Pointer) {
	allocate := cgo.Handle(handle).Value().(*context).allocate
	isolated(func() { memory = allocate(uintptr(bytes), uintptr(alignment)) })
	return memory
}

//export tesseraGoDeallocate
func tesseraGoDeallocate(handle C.uintptr_t, memory unsafe.Pointer, bytes C.size_t) {
	deallocate := cgo.Handle(handle).Value().(*context).deallocate
	isolated(func() { deallocate(memory, uintptr(bytes)) })
}

//export tesseraGoThreadStarted
func tesseraGoThreadStarted(handle C.uintptr_t, role *C.char, number C.int32_t) {
	defer func() { _ = recover() }()
	cgo.Handle(handle).Value().(*context).started(C.GoString(role), int32(number)) // on this very thread
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

// Tsr_raw_runtime_set_log is tsr_runtime_set_log; nil: no function.
func Tsr_raw_runtime_set_log(runtime uintptr, log func(level int32, text string)) uintptr {
	var held C.uintptr_t
	if log != nil {
		held = hold(&context{log: log})
	}
	return uintptr(C.tessera_go_runtime_set_log(C.uintptr_t(runtime), held))
}

// Tsr_raw_runtime_new_with_hooks is tsr_runtime_new_with_hooks.
func Tsr_raw_runtime_new_with_hooks(options uintptr, allocate func(bytes, alignment uintptr) unsafe.Pointer,
	deallocate func(memory unsafe.Pointer, bytes uintptr), started func(role string, number int32), out *uintptr) uintptr {
	has := C.int32_t(0)
	for i, is := range []bool{allocate != nil, deallocate != nil, started != nil} {
		if is {
			has |= 1 << i
		}
	}
	held := hold(&context{allocate: allocate, deallocate: deallocate, started: started})
	return uintptr(C.tessera_go_runtime_new_with_hooks(C.uintptr_t(options), held, has, result(out)))
}

// Tsr_raw_memory_new is memory of C, zeroed; nil where there is none.
func Tsr_raw_memory_new(size uint64) unsafe.Pointer { return C.tessera_go_memory_new(C.size_t(size)) }

// Tsr_raw_memory_free frees it.
func Tsr_raw_memory_free(memory unsafe.Pointer) { C.tessera_go_memory_free(memory) }

package tessera

import (
	"sync"
	"unsafe"

	"tessera.dev/tessera/raw"
)

// CMemory allocates memory of C, zeroed, that BorrowTensor and BorrowModel can keep. free, which may be called any number
// of times, gives it back; data must not be used after that.
func CMemory(size int) (data []byte, free func(), err error) {
	if size < 0 {
		return nil, nil, refuse("found %d bytes of memory, wanted at least 0", size)
	}
	memory := raw.Tsr_raw_memory_new(uint64(size))
	if memory == nil {
		return nil, nil, &Error{Code: OutOfMemory, Message: "memory of C: found none for so many bytes"}
	}
	var once sync.Once
	return unsafe.Slice((*byte)(memory), size), func() { once.Do(func() { raw.Tsr_raw_memory_free(memory) }) }, nil
}

// BorrowTensor makes a tensor of memory that it keeps without a copy: of CMemory or a mapped file (syscall.Mmap), not of Go,
// whose rules forbid C to keep it. data must not change until release is called, from any goroutine, once nothing uses it
// any more, also when this call fails; release may be nil, and may call this package. A panic in it is dropped.
func BorrowTensor(dtype DType, data []byte, release func(), dims ...int64) (*Tensor, error) {
	if release == nil {
		release = func() {}
	}
	if err := ready(); err != nil {
		release()
		return nil, err
	}
	return newTensor(hold(raw.Tsr_tensor_free, func(out *uintptr) uintptr {
		return raw.Tsr_raw_tensor_borrow(int32(dtype), dims, data, release, out)
	}))
}

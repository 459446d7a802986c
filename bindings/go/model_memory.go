package tessera

import (
	"errors"
	"fmt"
	"io"
	"sync"

	"tessera.dev/tessera/raw"
)

// LoadModelBytes reads a model from a file's bytes, which are copied.
func LoadModelBytes(data []byte) (*Model, error) {
	memory, free, err := CMemory(len(data))
	if err != nil {
		return nil, err
	}
	copy(memory, data)
	return BorrowModel(memory, free)
}

// BorrowModel reads a model from a file's bytes without a copy: CMemory or a mapped file, not memory of Go. data must not
// change until release is called, as for BorrowTensor.
func BorrowModel(data []byte, release func()) (*Model, error) {
	if release == nil {
		release = func() {}
	}
	if err := ready(); err != nil {
		release()
		return nil, err
	}
	return newModel(hold(raw.Tsr_model_free, func(out *uintptr) uintptr {
		return raw.Tsr_raw_model_load_bytes(data, release, out)
	}))
}

// LoadModelReader reads a model through a reader of its file, size bytes long, for archives, databases, encrypted stores.
// The reader is used from several goroutines, until the model and everything made of it are closed. Its errors, and panics,
// make the call that needed the bytes fail with code IO; errors.Is finds those of loading itself.
func LoadModelReader(reader io.ReaderAt, size int64) (*Model, error) {
	if reader == nil {
		return nil, refuse("reader is nil")
	}
	var first struct {
		sync.Mutex
		err error
	}
	h, err := hold(raw.Tsr_model_free, func(out *uintptr) uintptr {
		return raw.Tsr_raw_model_load_reader(size, func(p []byte, offset int64) error {
			err := errors.New("the reader ended its goroutine") // where readFull does not return
			defer func() {
				first.Lock()
				defer first.Unlock()
				if first.err == nil {
					first.err = err
				}
			}()
			err = readFull(reader, p, offset)
			return err
		}, out)
	})
	first.Lock()
	defer first.Unlock()
	var failed *Error
	if first.err != nil && errors.As(err, &failed) {
		return nil, &Error{Code: failed.Code, Message: failed.Message + ": " + first.err.Error(), cause: first.err}
	}
	return newModel(h, err)
}

// readFull fills p; panics become errors.
func readFull(reader io.ReaderAt, p []byte, offset int64) (err error) {
	defer func() {
		if found := recover(); found != nil {
			err = fmt.Errorf("the reader panicked: %v", found)
		}
	}()
	count, err := reader.ReadAt(p, offset)
	if count == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fmt.Errorf("found %d bytes at offset %d, wanted %d: %w", count, offset, len(p), io.ErrUnexpectedEOF)
	}
	return err
}

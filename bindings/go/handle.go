package tessera

import (
	"fmt"
	"runtime"
	"strings"
	"sync"
	"tessera/raw"
)

// handle owns one C handle, and frees it when it is closed or garbage and no call uses it. The C side counts
// references, so any order of freeing is safe, finalisers included. Nil, and the zero handle, are as closed ones.
type handle struct {
	free func(uintptr)

	mutex   sync.Mutex
	pointer uintptr // 0 once freed
	calls   int     // that use it now
	closed  bool
}

// hold makes a handle from a constructor, with a finaliser.
func hold(free func(uintptr), construct func(out *uintptr) uintptr) (*handle, error) {
	h := &handle{free: free}
	if err := failure(construct(&h.pointer)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, (*handle).close)
	return h, nil
}

// use is the C handle for one call, at whose end `done` is called: till then it is neither freed nor garbage. It is 0,
// which C answers with an error that names the argument, where there is none or it is closed.
func (h *handle) use() (pointer uintptr, done func()) {
	if h == nil {
		return 0, func() {}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.calls++
	if !h.closed {
		pointer = h.pointer
	}
	return pointer, h.done
}

func (h *handle) done() {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.calls--
	h.freeUnused()
}

func (h *handle) close() {
	if h == nil {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	h.closed = true
	h.freeUnused()
}

func (h *handle) freeUnused() {
	if h.closed && h.calls == 0 && h.pointer != 0 {
		runtime.SetFinalizer(h, nil)
		h.free(h.pointer)
		h.pointer = 0
	}
}

// noNUL refuses texts that C, where they end at the first NUL, would read as others.
func noNUL(what, text string) error {
	if at := strings.IndexByte(text, 0); at >= 0 {
		return &Error{InvalidArgument, fmt.Sprintf("%s: found %q with a NUL at byte %d, wanted none", what, text, at)}
	}
	return nil
}

// optional is use of an argument that may be nil, but not closed: what is closed is not the same as none.
func (h *handle) optional(what string) (pointer uintptr, done func(), err error) {
	pointer, done = h.use()
	if h != nil && pointer == 0 {
		err = &Error{InvalidArgument, what + " is closed"}
	}
	return pointer, done, err
}

// Options are the keyed values that the header lists for each function: integers, floats, strings.
type Options map[string]any

// with builds the C options, runs body with them and frees them.
func (o Options) with(body func(options uintptr) uintptr) error {
	var options uintptr
	if err := failure(raw.Tsr_options_new(&options)); err != nil {
		return err
	}
	defer raw.Tsr_options_free(options)
	for key, value := range o {
		if err := noNUL("key of an option", key); err != nil {
			return err
		}
		var status uintptr
		switch v := value.(type) {
		case int:
			status = raw.Tsr_options_set_i64(options, key, int64(v))
		case int64:
			status = raw.Tsr_options_set_i64(options, key, v)
		case bool:
			number := int64(0)
			if v {
				number = 1
			}
			status = raw.Tsr_options_set_i64(options, key, number)
		case float64:
			status = raw.Tsr_options_set_f64(options, key, v)
		case string:
			if err := noNUL(fmt.Sprintf("option %q", key), v); err != nil {
				return err
			}
			status = raw.Tsr_options_set_str(options, key, v)
		default:
			return &Error{InvalidArgument, fmt.Sprintf("option %q: found a %T, wanted int, int64, bool, float64 or string", key, value)}
		}
		if err := failure(status); err != nil {
			return err
		}
	}
	return failure(body(options))
}

// holdWith is hold for constructors that take options.
func holdWith(free func(uintptr), options Options, construct func(options uintptr, out *uintptr) uintptr) (*handle, error) {
	h := &handle{free: free}
	if err := options.with(func(o uintptr) uintptr { return construct(o, &h.pointer) }); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, (*handle).close)
	return h, nil
}

package tessera

import (
	"runtime"
	"strings"
	"sync"
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
	if err := ready(); err != nil {
		return nil, err
	}
	h := &handle{free: free}
	if err := failure(construct(&h.pointer)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, (*handle).close)
	return h, nil
}

// holdWith is hold for constructors that take options.
func holdWith(free func(uintptr), options Options, construct func(options uintptr, out *uintptr) uintptr) (*handle, error) {
	if err := ready(); err != nil {
		return nil, err
	}
	h := &handle{free: free}
	if err := options.with(func(o uintptr) uintptr { return construct(o, &h.pointer) }); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, (*handle).close)
	return h, nil
}

// use returns the C handle and keeps it alive until done is called. For a nil or closed handle it returns 0, for which C
// returns an error that names the argument.
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
	h.calls--
	h.freeUnused()
}

func (h *handle) close() {
	if h == nil {
		return
	}
	h.mutex.Lock()
	h.closed = true
	h.freeUnused()
}

// freeUnused unlocks, and then frees: h.free may call a user's release callback, which may use this handle again, so the
// mutex must not be held.
func (h *handle) freeUnused() {
	pointer := uintptr(0)
	if h.closed && h.calls == 0 && h.pointer != 0 {
		runtime.SetFinalizer(h, nil)
		pointer, h.pointer = h.pointer, 0
	}
	h.mutex.Unlock()
	if pointer != 0 {
		h.free(pointer)
	}
}

// optional is like use for an argument that may be nil; a closed one is an error.
func (h *handle) optional(what string) (pointer uintptr, done func(), err error) {
	pointer, done = h.use()
	if h != nil && pointer == 0 {
		err = refuse("%s is closed", what)
	}
	return pointer, done, err
}

// call calls a C function with this handle.
func (h *handle) call(function func(c uintptr) uintptr) error {
	c, done := h.use()
	defer done()
	return failure(function(c))
}

// text calls a C function with this handle, and returns the text that it makes.
func (h *handle) text(ask func(c uintptr, out *uintptr) uintptr) (string, error) {
	c, done := h.use()
	defer done()
	return text(func(out *uintptr) uintptr { return ask(c, out) })
}

// hold calls a C function with this handle, and holds the handle that it makes.
func (h *handle) hold(free func(uintptr), construct func(c uintptr, out *uintptr) uintptr) (*handle, error) {
	c, done := h.use()
	defer done()
	return hold(free, func(out *uintptr) uintptr { return construct(c, out) })
}

// holdWith is the same for constructors that take options.
func (h *handle) holdWith(free func(uintptr), options Options, construct func(c, options uintptr, out *uintptr) uintptr) (*handle, error) {
	c, done := h.use()
	defer done()
	return holdWith(free, options, func(o uintptr, out *uintptr) uintptr { return construct(c, o, out) })
}

// noNUL refuses texts with a NUL byte, at which C would cut them off.
func noNUL(what string, texts ...string) error {
	for _, text := range texts {
		if at := strings.IndexByte(text, 0); at >= 0 {
			return refuse("%s: found %q with a NUL at byte %d, wanted none", what, text, at)
		}
	}
	return nil
}

package tessera

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"tessera/raw"
)

// handle owns one C handle. The C side counts references, so any order of freeing is safe, finalisers included.
type handle struct {
	pointer uintptr
	free    func(uintptr)
}

// hold makes a handle from a constructor, with a finaliser.
func hold(free func(uintptr), construct func(out *uintptr) uintptr) (*handle, error) {
	h := &handle{free: free}
	if err := failure(construct(&h.pointer)); err != nil {
		return nil, err
	}
	runtime.SetFinalizer(h, (*handle).Close)
	return h, nil
}

// Close frees the handle now; later calls do nothing. No other call on it may be in progress.
func (h *handle) Close() {
	if pointer := atomic.SwapUintptr(&h.pointer, 0); pointer != 0 {
		runtime.SetFinalizer(h, nil)
		h.free(pointer)
	}
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
	runtime.SetFinalizer(h, (*handle).Close)
	return h, nil
}

package tessera

import (
	"tessera/raw"
)

// WithAdapters gives a model with new low-rank adapters, which alone train; it computes what m does, whose values it
// shares. Options: rank, alpha, on, ranks, alphas, rslora, dora, also.
func (m *Model) WithAdapters(options Options) (*Model, error) {
	c, done := (*handle)(m).use()
	defer done()
	h, err := holdWith(raw.Tsr_model_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_add_adapters(c, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Model)(h), nil
}

// LoadAdapters gives a model with the adapters of a file that others made for m: a folder that PEFT wrote, or a GGUF adapter.
// No options yet: nil.
func (m *Model) LoadAdapters(path string, options Options) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	c, done := (*handle)(m).use()
	defer done()
	h, err := holdWith(raw.Tsr_model_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_load_adapters(c, path, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Model)(h), nil
}

// MergeAdapters gives a model without adapters that computes what m does.
func (m *Model) MergeAdapters() (*Model, error) {
	c, done := (*handle)(m).use()
	defer done()
	h, err := hold(raw.Tsr_model_free, func(out *uintptr) uintptr { return raw.Tsr_model_merge_adapters(c, out) })
	if err != nil {
		return nil, err
	}
	return (*Model)(h), nil
}

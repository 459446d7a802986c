package tessera

import "tessera.dev/tessera/raw"

// WithAdapters gives a model with new low-rank adapters, which alone train; it computes what m does, whose values it
// shares. Options: rank, alpha, on, exclude, layers, ranks, alphas, rslora, dora, init, dropout, also.
func (m *Model) WithAdapters(options Options) (*Model, error) {
	return newModel((*handle)(m).holdWith(raw.Tsr_model_free, options, raw.Tsr_model_add_adapters))
}

// ForMethod gives the model of a method of training, "full", "lora" or "qlora:TYPE", as PlanMethods names them; adapters are
// the options of WithAdapters.
func (m *Model) ForMethod(method string, adapters Options) (*Model, error) {
	if err := noNUL("method", method); err != nil {
		return nil, err
	}
	return newModel((*handle)(m).holdWith(raw.Tsr_model_free, adapters, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_for_method(c, method, o, out)
	}))
}

// LoadAdapters gives a model with the adapters of a file that others made for m: a folder that PEFT wrote, or a GGUF adapter.
// No options yet: nil.
func (m *Model) LoadAdapters(path string, options Options) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newModel((*handle)(m).holdWith(raw.Tsr_model_free, options, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_load_adapters(c, path, o, out)
	}))
}

// ResizeTokens gives a model with this many rows in its token table and head; 0: the table's, or the tokenizer's tokens where
// those are more. Options: tokens (a JSON array of texts), special, multiple, seed.
func (m *Model) ResizeTokens(rows int64, options Options) (*Model, error) {
	return newModel((*handle)(m).holdWith(raw.Tsr_model_free, options, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_resize_tokens(c, rows, o, out)
	}))
}

// MergeAdapters gives a model without adapters that computes what m does.
func (m *Model) MergeAdapters() (*Model, error) {
	return newModel((*handle)(m).hold(raw.Tsr_model_free, raw.Tsr_model_merge_adapters))
}

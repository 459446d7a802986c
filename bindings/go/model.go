package tessera

import (
	"context"

	"tessera.dev/tessera/raw"
)

// Model is a graph with parameter values, a tokenizer and metadata. Any goroutine.
type Model handle

func newModel(h *handle, err error) (*Model, error) { return (*Model)(h), err }

// LoadModel reads a .tsr or GGUF file, or a Hugging Face folder.
func LoadModel(path string) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newModel(hold(raw.Tsr_model_free, func(out *uintptr) uintptr { return raw.Tsr_model_load(path, out) }))
}

// NewModel makes a model with random weights from a description such as "llama:L=2,C=64,H=4,F=128,V=256,T=128". Options:
// seed.
func NewModel(description string, options Options) (*Model, error) {
	if err := noNUL("description", description); err != nil {
		return nil, err
	}
	return newModel(holdWith(raw.Tsr_model_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_new(description, o, out)
	}))
}

// NewModelFromGraph makes a model of one's own graph, which is copied. Options: seed.
func NewModelFromGraph(graph *Graph, options Options) (*Model, error) {
	return newModel((*handle)(graph).holdWith(raw.Tsr_model_free, options, raw.Tsr_model_new_from_graph))
}

// Close frees it; see the package.
func (m *Model) Close() { (*handle)(m).close() }

// Save writes a .tsr file, all of it or nothing.
func (m *Model) Save(path string) error { return m.SaveWith(path, nil) }

// SaveWith is Save with options: compress.
func (m *Model) SaveWith(path string, options Options) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	c, done := (*handle)(m).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_model_save(c, path, o) })
}

// CheckModelPath says whether Save could write path now, before hours of work.
func CheckModelPath(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return call(func() uintptr { return raw.Tsr_model_check_path(path) })
}

// VerifyModel reads a .tsr file through and checks every checksum; code Corrupt names the tensor.
func VerifyModel(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return call(func() uintptr { return raw.Tsr_model_verify(path) })
}

// Quantize writes the model to a .tsr file with weights in fewer bits; it stays as it is. Options: type, which is needed,
// and the others of ConvertModel except verify. The report is JSON: what each tensor became, and its error.
func (m *Model) Quantize(path string, options Options) (report string, err error) {
	return m.quantize(0, path, options)
}

// QuantizeContext is Quantize, which the context's end ends; see Runtime.Cancel.
func (m *Model) QuantizeContext(ctx context.Context, r *Runtime, path string, options Options) (report string, err error) {
	c, done := (*handle)(r).use()
	defer done()
	err = until(ctx, r.Cancel, func() (err error) {
		report, err = m.quantize(c, path, options)
		return err
	})
	return report, err
}

func (m *Model) quantize(r uintptr, path string, options Options) (string, error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	c, done := (*handle)(m).use()
	defer done()
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_model_quantize(r, c, path, o, out) })
}

// Info is a JSON report of what the model holds.
func (m *Model) Info() (string, error) { return (*handle)(m).text(raw.Tsr_model_info) }

// Graph is a copy of the model's graph.
func (m *Model) Graph() (*Graph, error) {
	return newGraph((*handle)(m).hold(raw.Tsr_graph_free, raw.Tsr_model_graph))
}

// Metadata is the value of a key; false where there is none.
func (m *Model) Metadata(key string) (value string, found bool, err error) {
	if err := noNUL("key", key); err != nil {
		return "", false, err
	}
	c, done := (*handle)(m).use()
	defer done()
	return shortText(func(buffer []byte, size *uint64) uintptr { return raw.Tsr_model_metadata(c, key, buffer, size) })
}

// SetMetadata sets the value of a key; "" removes it.
func (m *Model) SetMetadata(key, value string) error {
	if err := noNUL("metadata", key, value); err != nil {
		return err
	}
	return (*handle)(m).call(func(c uintptr) uintptr { return raw.Tsr_model_set_metadata(c, key, value) })
}

// Parameters are the names of the model's parameters, in graph order.
func (m *Model) Parameters() ([]string, error) {
	c, done := (*handle)(m).use()
	defer done()
	var count uint64
	if err := failure(raw.Tsr_model_parameter_count(c, &count)); err != nil {
		return nil, err
	}
	names := make([]string, count)
	for i := range names {
		name, _, err := shortText(func(buffer []byte, size *uint64) uintptr {
			return raw.Tsr_model_parameter_name(c, int64(i), buffer, size)
		})
		if err != nil {
			return nil, err
		}
		names[i] = name
	}
	return names, nil
}

// Read is the value of a parameter: a view that stays as it was when the model changes.
func (m *Model) Read(parameter string) (*Tensor, error) {
	if err := noNUL("parameter", parameter); err != nil {
		return nil, err
	}
	return newTensor((*handle)(m).hold(raw.Tsr_tensor_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_model_read(c, parameter, out)
	}))
}

// Write sets the value of a parameter; the model keeps the tensor's memory, so that the tensor must not change.
func (m *Model) Write(parameter string, value *Tensor) error {
	if err := noNUL("parameter", parameter); err != nil {
		return err
	}
	t, done := (*handle)(value).use()
	defer done()
	return (*handle)(m).call(func(c uintptr) uintptr { return raw.Tsr_model_write(c, parameter, t) })
}

// Tokenizer of the model; an Error with code NotFound when it has none.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	return newTokenizer((*handle)(m).hold(raw.Tsr_tokenizer_free, raw.Tsr_model_tokenizer))
}

// SetTokenizer gives the model a tokenizer; nil removes it.
func (m *Model) SetTokenizer(t *Tokenizer) error {
	tokenizer, done, err := (*handle)(t).optional("tokenizer")
	defer done()
	if err != nil {
		return err
	}
	return (*handle)(m).call(func(c uintptr) uintptr { return raw.Tsr_model_set_tokenizer(c, tokenizer) })
}

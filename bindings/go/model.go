package tessera

import (
	"runtime"
	"tessera/raw"
)

// Runtime holds backends, threads and the log. Options: threads, plugin_path, log_level, log_capacity.
type Runtime struct{ *handle }

// NewRuntime makes a runtime; nil options are all defaults.
func NewRuntime(options Options) (*Runtime, error) {
	h, err := holdWith(raw.Tsr_runtime_free, options, raw.Tsr_runtime_new)
	if err != nil {
		return nil, err
	}
	return &Runtime{h}, nil
}

// Backends is a JSON report of what can be used here and, where something cannot, why.
func (r *Runtime) Backends() (string, error) {
	defer runtime.KeepAlive(r.handle)
	return text(func(b []byte, n *uint64) uintptr { return raw.Tsr_runtime_backends(r.pointer, b, n) })
}

// Tokenizer turns text into token ids and back. Immutable; any goroutine.
type Tokenizer struct{ *handle }

// NewByteTokenizer has 256 tokens, one a byte.
func NewByteTokenizer() (*Tokenizer, error) {
	h, err := hold(raw.Tsr_tokenizer_free, raw.Tsr_tokenizer_new_bytes)
	if err != nil {
		return nil, err
	}
	return &Tokenizer{h}, nil
}

// LoadTokenizer reads the tokenizer inside a .tsr or GGUF file.
func LoadTokenizer(path string) (*Tokenizer, error) {
	h, err := hold(raw.Tsr_tokenizer_free, func(out *uintptr) uintptr { return raw.Tsr_tokenizer_load(path, out) })
	if err != nil {
		return nil, err
	}
	return &Tokenizer{h}, nil
}

// Encode gives the ids of text, without BOS.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	defer runtime.KeepAlive(t.handle)
	var count uint64
	if err := failure(raw.Tsr_tokenizer_encode(t.pointer, text, 0, nil, &count)); err != nil {
		return nil, err
	}
	ids := make([]int32, count)
	err := failure(raw.Tsr_tokenizer_encode(t.pointer, text, 0, ids, &count))
	return ids, err
}

// Decode gives the text of ids, without BOS.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	defer runtime.KeepAlive(t.handle)
	return text(func(b []byte, n *uint64) uintptr { return raw.Tsr_tokenizer_decode(t.pointer, ids, b, n) })
}

// Model is a graph with parameter values, a tokenizer and metadata. Any goroutine.
type Model struct{ *handle }

func newModel(construct func(out *uintptr) uintptr) (*Model, error) {
	h, err := hold(raw.Tsr_model_free, construct)
	if err != nil {
		return nil, err
	}
	return &Model{h}, nil
}

// LoadModel reads a .tsr or GGUF file.
func LoadModel(path string) (*Model, error) {
	return newModel(func(out *uintptr) uintptr { return raw.Tsr_model_load(path, out) })
}

// NewModel makes a model with random weights from a description such as "llama:L=2,C=64,H=4,F=128,V=256,T=128".
func NewModel(description string, options Options) (*Model, error) {
	h, err := holdWith(raw.Tsr_model_free, options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_model_new(description, o, out) })
	if err != nil {
		return nil, err
	}
	return &Model{h}, nil
}

// Save writes a .tsr file, all of it or nothing.
func (m *Model) Save(path string) error {
	defer runtime.KeepAlive(m.handle)
	return failure(raw.Tsr_model_save(m.pointer, path, 0))
}

// Info is a JSON report of what the model holds.
func (m *Model) Info() (string, error) {
	defer runtime.KeepAlive(m.handle)
	return text(func(b []byte, n *uint64) uintptr { return raw.Tsr_model_info(m.pointer, b, n) })
}

// Tokenizer of the model; an Error with code NotFound when it has none.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	defer runtime.KeepAlive(m.handle)
	h, err := hold(raw.Tsr_tokenizer_free, func(out *uintptr) uintptr { return raw.Tsr_model_tokenizer(m.pointer, out) })
	if err != nil {
		return nil, err
	}
	return &Tokenizer{h}, nil
}

// SetTokenizer gives the model a tokenizer; nil removes it.
func (m *Model) SetTokenizer(t *Tokenizer) error {
	defer runtime.KeepAlive(m.handle)
	if t == nil {
		return failure(raw.Tsr_model_set_tokenizer(m.pointer, 0))
	}
	defer runtime.KeepAlive(t.handle)
	return failure(raw.Tsr_model_set_tokenizer(m.pointer, t.pointer))
}

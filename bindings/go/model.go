package tessera

import (
	"tessera/raw"
)

// Runtime holds backends, threads and the log. Options: threads, plugin_path, log_level, log_capacity.
type Runtime handle

// Close frees it; see the package.
func (r *Runtime) Close() { (*handle)(r).close() }

// NewRuntime makes a runtime; nil options are all defaults.
func NewRuntime(options Options) (*Runtime, error) {
	h, err := holdWith(raw.Tsr_runtime_free, options, raw.Tsr_runtime_new)
	if err != nil {
		return nil, err
	}
	return (*Runtime)(h), nil
}

// Backends is a JSON report of what can be used here and, where something cannot, why.
func (r *Runtime) Backends() (string, error) {
	c, done := (*handle)(r).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_runtime_backends(c, out) })
}

// Cancel ends calls in progress on other goroutines that plan, load or measure with this runtime (NewTrainer,
// NewGenerator, ...) with an Error of code Cancelled. With a context:
//
//	done := make(chan struct{})
//	defer close(done)
//	go func() {
//		select {
//		case <-ctx.Done():
//			runtime.Cancel()
//		case <-done:
//		}
//	}()
//	trainer, err := tessera.NewTrainer(runtime, model, dataset, options)
func (r *Runtime) Cancel() {
	c, done := (*handle)(r).use()
	defer done()
	raw.Tsr_runtime_cancel(c)
}

// Tokenizer turns text into token ids and back. Immutable; any goroutine.
type Tokenizer handle

// Close frees it; see the package.
func (t *Tokenizer) Close() { (*handle)(t).close() }

// NewByteTokenizer has 256 tokens, one a byte.
func NewByteTokenizer() (*Tokenizer, error) {
	h, err := hold(raw.Tsr_tokenizer_free, raw.Tsr_tokenizer_new_bytes)
	if err != nil {
		return nil, err
	}
	return (*Tokenizer)(h), nil
}

// LoadTokenizer reads the tokenizer inside a .tsr or GGUF file, or of a Hugging Face folder or tokenizer.json.
func LoadTokenizer(path string) (*Tokenizer, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	h, err := hold(raw.Tsr_tokenizer_free, func(out *uintptr) uintptr { return raw.Tsr_tokenizer_load(path, out) })
	if err != nil {
		return nil, err
	}
	return (*Tokenizer)(h), nil
}

// Encode gives the ids of text, without what stands around texts.
func (t *Tokenizer) Encode(text string) ([]int32, error) {
	return t.encode(text, 0)
}

// EncodeAround gives the ids of text with what the tokenizer puts around texts: BOS and EOS, [CLS] and [SEP], and so on.
func (t *Tokenizer) EncodeAround(text string) ([]int32, error) {
	return t.encode(text, uint(raw.TSR_ENCODE_AROUND))
}

func (t *Tokenizer) encode(text string, flags uint) ([]int32, error) {
	c, done := (*handle)(t).use()
	defer done()
	var count uint64
	if err := failure(raw.Tsr_tokenizer_encode(c, text, flags, nil, &count)); err != nil {
		return nil, err
	}
	ids := make([]int32, count)
	err := failure(raw.Tsr_tokenizer_encode(c, text, flags, ids, &count))
	return ids, err
}

// A TextRange is a part of a text: its first byte, and the first byte after it.
type TextRange struct{ Begin, End int }

// EncodeRanges gives the ids of text with control tokens recognised, except in the literal parts, in order and
// disjoint; and the byte of the text at which each token begins.
func (t *Tokenizer) EncodeRanges(text string, literal []TextRange) (ids []int32, begins []uint64, err error) {
	c, done := (*handle)(t).use()
	defer done()
	bounds := make([]uint64, 0, 2*len(literal))
	for _, part := range literal {
		bounds = append(bounds, uint64(part.Begin), uint64(part.End))
	}
	var count uint64
	special := uint(raw.TSR_ENCODE_SPECIAL)
	if err := failure(raw.Tsr_tokenizer_encode_ranges(c, text, special, bounds, nil, nil, &count)); err != nil {
		return nil, nil, err
	}
	ids, begins = make([]int32, count), make([]uint64, count)
	if count == 0 {
		return ids, begins, nil
	}
	err = failure(raw.Tsr_tokenizer_encode_ranges(c, text, special, bounds, ids, &begins[0], &count))
	return ids, begins, err
}

// EndIDs are the tokens that end generation: of a text, a turn or a message.
func (t *Tokenizer) EndIDs() ([]int32, error) {
	c, done := (*handle)(t).use()
	defer done()
	var count uint64
	if err := failure(raw.Tsr_tokenizer_end_ids(c, nil, &count)); err != nil {
		return nil, err
	}
	ids := make([]int32, count)
	err := failure(raw.Tsr_tokenizer_end_ids(c, ids, &count))
	return ids, err
}

// Decode gives the text of ids, without BOS.
func (t *Tokenizer) Decode(ids []int32) (string, error) {
	c, done := (*handle)(t).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_tokenizer_decode(c, ids, out) })
}

// Model is a graph with parameter values, a tokenizer and metadata. Any goroutine.
type Model handle

// Close frees it; see the package.
func (m *Model) Close() { (*handle)(m).close() }

func newModel(construct func(out *uintptr) uintptr) (*Model, error) {
	h, err := hold(raw.Tsr_model_free, construct)
	if err != nil {
		return nil, err
	}
	return (*Model)(h), nil
}

// LoadModel reads a .tsr or GGUF file, or a Hugging Face folder.
func LoadModel(path string) (*Model, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newModel(func(out *uintptr) uintptr { return raw.Tsr_model_load(path, out) })
}

// NewModel makes a model with random weights from a description such as "llama:L=2,C=64,H=4,F=128,V=256,T=128".
func NewModel(description string, options Options) (*Model, error) {
	if err := noNUL("description", description); err != nil {
		return nil, err
	}
	h, err := holdWith(raw.Tsr_model_free, options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_model_new(description, o, out) })
	if err != nil {
		return nil, err
	}
	return (*Model)(h), nil
}

// Save writes a .tsr file, all of it or nothing.
func (m *Model) Save(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	c, done := (*handle)(m).use()
	defer done()
	return failure(raw.Tsr_model_save(c, path, 0))
}

// Quantize writes the model to a .tsr file with weights in fewer bits; it stays as it is. Options: type, which is needed,
// and the others of ConvertModel except verify. The report is JSON: what each tensor became, and its error.
func (m *Model) Quantize(path string, options Options) (report string, err error) {
	if err := noNUL("path", path); err != nil {
		return "", err
	}
	c, done := (*handle)(m).use()
	defer done()
	err = options.with(func(o uintptr) uintptr {
		var made uintptr
		status := raw.Tsr_model_quantize(0, c, path, o, &made)
		if status == 0 {
			report = raw.Tsr_text_data(made)
			raw.Tsr_text_free(made)
		}
		return status
	})
	return report, err
}

// CheckModelPath says whether Save could write path now, before hours of work.
func CheckModelPath(path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	return failure(raw.Tsr_model_check_path(path))
}

// Info is a JSON report of what the model holds.
func (m *Model) Info() (string, error) {
	c, done := (*handle)(m).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_model_info(c, out) })
}

// Tokenizer of the model; an Error with code NotFound when it has none.
func (m *Model) Tokenizer() (*Tokenizer, error) {
	c, done := (*handle)(m).use()
	defer done()
	h, err := hold(raw.Tsr_tokenizer_free, func(out *uintptr) uintptr { return raw.Tsr_model_tokenizer(c, out) })
	if err != nil {
		return nil, err
	}
	return (*Tokenizer)(h), nil
}

// SetTokenizer gives the model a tokenizer; nil removes it.
func (m *Model) SetTokenizer(t *Tokenizer) error {
	c, done := (*handle)(m).use()
	defer done()
	tokenizer, tokenizerDone, err := (*handle)(t).optional("tokenizer")
	defer tokenizerDone()
	if err != nil {
		return err
	}
	return failure(raw.Tsr_model_set_tokenizer(c, tokenizer))
}

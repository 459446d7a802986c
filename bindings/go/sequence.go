package tessera

import "tessera.dev/tessera/raw"

// Sequence is a value: the tokens of a prompt and of its text, whose keys and values stay in the engine's cache while it has
// room, and are computed again where it has not. It holds nothing but its tokens, so any number may be kept, with or without
// their engine. One goroutine at a time. Request.Sequence gives one, Engine.SubmitSequence goes on with it.
type Sequence handle

func newSequence(h *handle, err error) (*Sequence, error) { return (*Sequence)(h), err }

// Close frees it; see the package.
func (s *Sequence) Close() { (*handle)(s).close() }

// Fork gives a copy, which goes its own way.
func (s *Sequence) Fork() (*Sequence, error) {
	return newSequence((*handle)(s).hold(raw.Tsr_sequence_free, raw.Tsr_sequence_fork))
}

// Rewind keeps the first tokens: 1 to all.
func (s *Sequence) Rewind(count int) error {
	if count < 0 {
		return refuse("count is %d, wanted 1 to as many as the sequence has", count)
	}
	return (*handle)(s).call(func(c uintptr) uintptr { return raw.Tsr_sequence_rewind(c, int64(count)) })
}

// Tokens are the ids of prompt and text.
func (s *Sequence) Tokens() ([]int32, error) {
	c, done := (*handle)(s).use()
	defer done()
	return int32s(func(items []int32, count *uint64) uintptr { return raw.Tsr_sequence_tokens(c, items, count) })
}

// Sequence is that of a text of a request with the option keep, once the text has ended; ErrNotFound otherwise, and the second
// time.
func (e *Engine) Sequence(request int64, index int) (*Sequence, error) {
	return newSequence(e.inner().handle.hold(raw.Tsr_sequence_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_engine_take_sequence(c, request, index, out)
	}))
}

// Sequence is Engine.Sequence of a text of this request.
func (r *Request) Sequence(index int) (*Sequence, error) {
	r = r.some()
	return r.engine.Sequence(r.number, index)
}

// SubmitSequence is SubmitTokens of the sequence's tokens and then these, if any.
func (e *Engine) SubmitSequence(sequence *Sequence, ids []int32, options Options) (*Request, error) {
	s, done := (*handle)(sequence).use()
	defer done()
	return e.submit(options, func(c, o uintptr, number *int64) uintptr {
		return raw.Tsr_engine_submit_sequence(c, o, s, ids, number)
	})
}

// SaveSequence writes a sequence to a file, with the keys and values that are cached. ErrUnsupported for one that was computed
// with an adapter.
func (e *Engine) SaveSequence(sequence *Sequence, path string) error {
	if err := noNUL("path", path); err != nil {
		return err
	}
	s, done := (*handle)(sequence).use()
	defer done()
	return e.inner().handle.call(func(c uintptr) uintptr { return raw.Tsr_engine_save_sequence(c, s, path) })
}

// RestoreSequence reads it back, into the cache as far as that has room. ErrCorrupt for a file that is damaged,
// ErrInvalidArgument for one of another model or other settings.
func (e *Engine) RestoreSequence(path string) (*Sequence, error) {
	if err := noNUL("path", path); err != nil {
		return nil, err
	}
	return newSequence(e.inner().handle.hold(raw.Tsr_sequence_free, func(c uintptr, out *uintptr) uintptr {
		return raw.Tsr_engine_restore_sequence(c, path, out)
	}))
}

// LoadAdapter gives the number of a LoRA adapter, for the option adapter of requests: a PEFT folder, a GGUF adapter, or a .tsr
// file with adapters over the engine's model. Others are served meanwhile. The engine needs the option adapters.
func (e *Engine) LoadAdapter(path string) (int64, error) {
	if err := noNUL("path", path); err != nil {
		return -1, err
	}
	number := int64(-1)
	err := e.inner().handle.call(func(c uintptr) uintptr { return raw.Tsr_engine_load_adapter(c, path, &number) })
	return number, err
}

// LoadAdapterFromModel is LoadAdapter of a model's adapter, without a file. m may be closed afterwards.
func (e *Engine) LoadAdapterFromModel(m *Model) (int64, error) {
	c, done := (*handle)(m).use()
	defer done()
	number := int64(-1)
	err := e.inner().handle.call(func(e uintptr) uintptr { return raw.Tsr_engine_load_adapter_from_model(e, c, &number) })
	return number, err
}

// LoadAdapterFromTrainer is LoadAdapter of the adapter that t trains, as it is now, without a file: later steps do not change
// what the engine has. The engine's model is the trainer's without the adapter. Call between steps.
func (e *Engine) LoadAdapterFromTrainer(t *Trainer) (int64, error) {
	c, done := (*handle)(t).use()
	defer done()
	number := int64(-1)
	err := e.inner().handle.call(func(e uintptr) uintptr { return raw.Tsr_engine_load_adapter_from_trainer(e, c, &number) })
	return number, err
}

// DropAdapter refuses further requests with the adapter; those that use it go on. ErrNotFound the second time.
func (e *Engine) DropAdapter(adapter int64) error {
	return e.inner().handle.call(func(c uintptr) uintptr { return raw.Tsr_engine_drop_adapter(c, adapter) })
}

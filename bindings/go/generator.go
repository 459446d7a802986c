package tessera

import (
	"io"
	"tessera/raw"
)

// Generator continues texts. The header lists its options under tsr_generator_new.
type Generator handle

// Close frees it; see the package.
func (g *Generator) Close() { (*handle)(g).close() }

// NewGenerator plans, and prepares the devices.
func NewGenerator(r *Runtime, model *Model, options Options) (*Generator, error) {
	c, done := (*handle)(r).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	h, err := holdWith(raw.Tsr_generator_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_generator_new(c, modelC, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Generator)(h), nil
}

// Start begins a new text.
func (g *Generator) Start(prompt string) error {
	c, done := (*handle)(g).use()
	defer done()
	return failure(raw.Tsr_generator_start(c, prompt))
}

// StartWith begins a new text with settings of its own: the options that the header lists under
// tsr_generator_start_with. One generator so draws any number of samples, each from a seed of its own.
func (g *Generator) StartWith(prompt string, options Options) error {
	c, done := (*handle)(g).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_generator_start_with(c, o, prompt) })
}

// StartTokens begins a new text with token ids, such as those of Chat.Encode. A prompt that begins as the one before it
// did is computed from about where they part.
func (g *Generator) StartTokens(ids []int32) error {
	return g.StartTokensWith(ids, nil)
}

// StartTokensWith is StartTokens with settings of this text alone, as StartWith.
func (g *Generator) StartTokensWith(ids []int32, options Options) error {
	c, done := (*handle)(g).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_generator_start_tokens_with(c, o, ids) })
}

// Report is JSON: tokens, the seed that the text was drawn from, speed, memory.
func (g *Generator) Report() (string, error) {
	c, done := (*handle)(g).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_generator_report(c, out) })
}

// Next waits for the next piece of text; io.EOF when the text is complete. A piece may be empty.
func (g *Generator) Next() (string, error) {
	c, done := (*handle)(g).use()
	defer done()
	piece := raw.NewTsr_piece()
	defer raw.DeleteTsr_piece(piece)
	piece.SetStruct_size(raw.Tsr_raw_piece_size())
	for {
		if err := failure(raw.Tsr_generator_next(c, -1, piece)); err != nil {
			return "", err
		}
		switch piece.GetKind() {
		case raw.TSR_PIECE:
			return piece.GetText(), nil
		case raw.TSR_END:
			return "", io.EOF
		}
	}
}

// Cancel ends the text in progress, from any goroutine.
func (g *Generator) Cancel() {
	c, done := (*handle)(g).use()
	defer done()
	raw.Tsr_generator_cancel(c)
}

package tessera

import (
	"context"
	"time"

	"tessera.dev/tessera/raw"
)

// Generator continues texts, one at a time. A thread of the library computes; Stream, or Start and Next, collect. The header
// lists its options under tsr_generator_new.
type Generator handle

// NewGenerator plans, and prepares the devices.
func NewGenerator(r *Runtime, model *Model, options Options) (*Generator, error) {
	return NewGeneratorContext(context.Background(), r, model, options)
}

// NewGeneratorContext is NewGenerator, which the context's end ends; see Runtime.Cancel.
func NewGeneratorContext(ctx context.Context, r *Runtime, model *Model, options Options) (*Generator, error) {
	c, done := (*handle)(r).use()
	defer done()
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_generator_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_generator_new(c, m, o, out)
		})
	})
	return (*Generator)(h), err
}

// NewTrainedGenerator is a generator on the weights that a trainer trains, as NewTrainedEngine is an engine.
func NewTrainedGenerator(t *Trainer, options Options) (*Generator, error) {
	h, err := (*handle)(t).holdWith(raw.Tsr_generator_free, options, func(c, o uintptr, out *uintptr) uintptr {
		return raw.Tsr_generator_new_for_trainer(c, o, out)
	})
	return (*Generator)(h), err
}

// Close frees it; see the package.
func (g *Generator) Close() { (*handle)(g).close() }

// Start begins a new text.
func (g *Generator) Start(prompt string) error {
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_generator_start(c, prompt) })
}

// StartWith begins a new text with settings of its own: the options that the header lists under
// tsr_generator_start_with. One generator so draws any number of samples, each from a seed of its own.
func (g *Generator) StartWith(prompt string, options Options) error {
	c, done := (*handle)(g).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_generator_start_with(c, o, prompt) })
}

// StartTokens begins a new text with token ids, such as those of Chat.Encode. A prompt that begins as an earlier one
// did is computed from where they part.
func (g *Generator) StartTokens(ids []int32) error {
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_generator_start_tokens(c, ids) })
}

// StartTokensWith is StartTokens with settings of this text alone, as StartWith.
func (g *Generator) StartTokensWith(ids []int32, options Options) error {
	c, done := (*handle)(g).use()
	defer done()
	return options.with(func(o uintptr) uintptr { return raw.Tsr_generator_start_tokens_with(c, o, ids) })
}

// PieceKind says what Next found.
type PieceKind int32

const (
	PieceToken   PieceKind = 0 // a token, and the text that became certain with it
	PiecePending PieceKind = 1 // nothing within the timeout
	PieceEnd     PieceKind = 2 // the text is complete
)

// Finish says why a text ended.
type Finish int32

const (
	FinishNone      Finish = 0 // it has not
	FinishLength    Finish = 1 // max_tokens, or the context, is full
	FinishStop      Finish = 2 // a token or text that ends it
	FinishCancelled Finish = 3
	FinishFailed    Finish = 4 // of an engine alone: Event.Failure says why
)

// String is the reason in a word.
func (f Finish) String() string {
	if f < FinishNone || f > FinishFailed {
		return "unknown"
	}
	return [...]string{"none", "length", "stop", "cancelled", "failed"}[f]
}

// Piece is what Next found of a text.
type Piece struct {
	Kind   PieceKind
	Token  int32  // -1 for text alone
	Text   string // whole characters, perhaps none yet
	Finish Finish // with PieceEnd
}

// Next waits for the next piece at most so long; negative: as long as it takes.
func (g *Generator) Next(timeout time.Duration) (Piece, error) {
	c, done := (*handle)(g).use()
	defer done()
	found := raw.NewTsr_piece()
	defer raw.DeleteTsr_piece(found)
	found.SetStruct_size(raw.Tsr_raw_piece_size())
	if err := failure(raw.Tsr_generator_next(c, timeout.Seconds(), found)); err != nil {
		return Piece{}, err
	}
	piece := Piece{Kind: PieceKind(found.GetKind()), Token: -1}
	switch piece.Kind {
	case PieceToken:
		piece.Token, piece.Text = int32(found.GetToken()), found.GetText()
	case PieceEnd:
		piece.Finish = Finish(found.GetFinish())
	}
	return piece, nil
}

// Logits are those of the last token computed, f32 [V], once the text is complete.
func (g *Generator) Logits() (*Tensor, error) {
	return newTensor((*handle)(g).hold(raw.Tsr_tensor_free, raw.Tsr_generator_logits))
}

// Report is JSON: tokens, the seed that the text was drawn from, speed, memory.
func (g *Generator) Report() (string, error) { return (*handle)(g).text(raw.Tsr_generator_report) }

// Trace is what ran since the last call, in Chrome's trace format, once the text is complete. It needs the option "trace".
func (g *Generator) Trace() (string, error) { return (*handle)(g).text(raw.Tsr_generator_take_trace) }

// Cancel ends the text in progress, from any goroutine, with FinishCancelled.
func (g *Generator) Cancel() {
	c, done := (*handle)(g).use()
	defer done()
	raw.Tsr_generator_cancel(c)
}

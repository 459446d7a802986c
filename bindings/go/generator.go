package tessera

import (
	"io"
	"runtime"
	"tessera/raw"
)

// Generator continues texts. The header lists its options under tsr_generator_new.
type Generator struct{ *handle }

// NewGenerator plans, and prepares the devices.
func NewGenerator(r *Runtime, model *Model, options Options) (*Generator, error) {
	defer runtime.KeepAlive(r.handle)
	defer runtime.KeepAlive(model.handle)
	h, err := holdWith(raw.Tsr_generator_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_generator_new(r.pointer, model.pointer, o, out)
	})
	if err != nil {
		return nil, err
	}
	return &Generator{h}, nil
}

// Start begins a new text.
func (g *Generator) Start(prompt string) error {
	defer runtime.KeepAlive(g.handle)
	return failure(raw.Tsr_generator_start(g.pointer, prompt))
}

// Next waits for the next piece of text; io.EOF when the text is complete. A piece may be empty.
func (g *Generator) Next() (string, error) {
	defer runtime.KeepAlive(g.handle)
	piece := raw.NewTsr_piece()
	defer raw.DeleteTsr_piece(piece)
	piece.SetStruct_size(raw.PieceSize())
	for {
		if err := failure(raw.Tsr_generator_next(g.pointer, -1, piece)); err != nil {
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
	defer runtime.KeepAlive(g.handle)
	raw.Tsr_generator_cancel(g.pointer)
}

package tessera

import (
	"context"
	"strings"
	"time"
)

// Stream is one text of a generator as it comes:
//
//	stream := generator.Stream(ctx, "Once upon a time", nil)
//	for stream.Next() {
//		fmt.Print(stream.Piece().Text)
//	}
//	if err := stream.Err(); err != nil { ... }
//
// It holds neither memory of C nor a goroutine. A generator has one stream at a time:
// starting a new stream discards the rest of the previous one.
type Stream struct {
	generator *Generator
	ctx       context.Context
	piece     Piece
	finish    Finish
	ended     bool
	err       error
}

// Stream begins a new text; options are those of StartWith, nil for those of the generator. If the context ends, so does the
// text, and Err is the context's error. An error while starting is also returned by Err.
func (g *Generator) Stream(ctx context.Context, prompt string, options Options) *Stream {
	return g.stream(ctx, func() error { return g.StartWith(prompt, options) })
}

// StreamTokens is Stream of token ids.
func (g *Generator) StreamTokens(ctx context.Context, ids []int32, options Options) *Stream {
	return g.stream(ctx, func() error { return g.StartTokensWith(ids, options) })
}

func (g *Generator) stream(ctx context.Context, start func() error) *Stream {
	s := &Stream{generator: g, ctx: ctx, err: ctx.Err()}
	if s.err == nil {
		s.err = start()
	}
	return s
}

// Generate is a whole text at once.
func (g *Generator) Generate(ctx context.Context, prompt string, options Options) (string, error) {
	return g.Stream(ctx, prompt, options).text()
}

// GenerateTokens is Generate of token ids.
func (g *Generator) GenerateTokens(ctx context.Context, ids []int32, options Options) (string, error) {
	return g.StreamTokens(ctx, ids, options).text()
}

func (s *Stream) text() (string, error) {
	var text strings.Builder
	for s.Next() {
		text.WriteString(s.piece.Text)
	}
	return text.String(), s.err
}

// How long Next waits before it asks the context.
const streamPoll = 20 * time.Millisecond

// Next waits for the next piece; false at the end of the text, and after an error.
func (s *Stream) Next() bool {
	timeout := time.Duration(-1)
	if s.ctx.Done() != nil {
		timeout = streamPoll
	}
	for s.err == nil && !s.ended {
		if err := s.ctx.Err(); err != nil {
			s.Stop()
			s.err = err
			break
		}
		s.piece, s.err = s.generator.Next(timeout)
		if s.err != nil {
			break
		}
		switch s.piece.Kind {
		case PieceToken:
			return true
		case PieceEnd:
			s.finish, s.ended = s.piece.Finish, true
		}
	}
	s.piece = Piece{Kind: PieceEnd, Token: -1, Finish: s.finish}
	return false
}

// Piece is what the last Next found: a token and its text.
func (s *Stream) Piece() Piece { return s.piece }

// Finish says why the text ended, once Next is false.
func (s *Stream) Finish() Finish { return s.finish }

// Err is what ended the stream before the text's end; nil for a whole text.
func (s *Stream) Err() error { return s.err }

// Stop ends the text, and returns when nothing is computed any more.
func (s *Stream) Stop() {
	for s.err == nil && !s.ended {
		s.generator.Cancel()
		var piece Piece
		piece, s.err = s.generator.Next(-1)
		if piece.Kind == PieceEnd {
			s.finish, s.ended = piece.Finish, true
		}
	}
}

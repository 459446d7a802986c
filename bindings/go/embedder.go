package tessera

import (
	"context"
	"encoding/json"
	"fmt"

	"tessera.dev/tessera/raw"
)

// Embedder computes a row of numbers of each text: its vector, or what a classifier says of it. The header lists its
// options under tsr_embedder_new.
type Embedder handle

// NewEmbedder plans, and prepares the devices.
func NewEmbedder(r *Runtime, model *Model, options Options) (*Embedder, error) {
	return NewEmbedderContext(context.Background(), r, model, options)
}

// NewEmbedderContext is NewEmbedder, which the context's end ends; see Runtime.Cancel.
func NewEmbedderContext(ctx context.Context, r *Runtime, model *Model, options Options) (*Embedder, error) {
	c, done := (*handle)(r).use()
	defer done()
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_embedder_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_embedder_new(c, m, o, out)
		})
	})
	return (*Embedder)(h), err
}

// Close frees it; see the package.
func (e *Embedder) Close() { (*handle)(e).close() }

// Width is how many numbers a row has.
func (e *Embedder) Width() (int, error) {
	var width uint64
	err := (*handle)(e).call(func(c uintptr) uintptr { return raw.Tsr_embedder_width(c, &width) })
	return int(width), err
}

// Embed gives a row for each text, or with option "pairs" for each two. progress, which may be nil, hears the share that
// is done now and then.
func (e *Embedder) Embed(texts []string, progress func(done float64)) ([][]float32, error) {
	return e.EmbedContext(context.Background(), texts, progress)
}

// EmbedContext is Embed, which the context's end ends.
func (e *Embedder) EmbedContext(ctx context.Context, texts []string, progress func(done float64)) ([][]float32, error) {
	c, done := (*handle)(e).use()
	defer done()
	text, lengths := joined(texts)
	if progress != nil {
		if err := failure(raw.Tsr_embedder_start(c, text, lengths)); err != nil {
			return nil, err
		}
		return e.rows(ctx, progress)
	}
	var width, count uint64
	if err := failure(raw.Tsr_embedder_width(c, &width)); err != nil {
		return nil, err
	}
	values := make([]float32, width*uint64(len(texts)))
	err := until(ctx, e.Cancel, func() error { return failure(raw.Tsr_embedder_embed(c, text, lengths, values, &count)) })
	if err != nil { // pairs make one row of two texts
		return nil, err
	}
	return inRows(values, count, width)
}

// EmbedTokens is Embed of token ids, which are read as they are.
func (e *Embedder) EmbedTokens(texts [][]int32, progress func(done float64)) ([][]float32, error) {
	c, done := (*handle)(e).use()
	defer done()
	ids, lengths := joinedIDs(texts)
	if err := failure(raw.Tsr_embedder_start_ids(c, ids, lengths)); err != nil {
		return nil, err
	}
	return e.rows(context.Background(), progress)
}

// rows computes what was started.
func (e *Embedder) rows(ctx context.Context, progress func(done float64)) ([][]float32, error) {
	c, done := (*handle)(e).use()
	defer done()
	if err := shares(ctx, e.Cancel, c, raw.Tsr_embedder_step, progress); err != nil {
		return nil, err
	}
	var width, count uint64
	if err := failure(raw.Tsr_embedder_width(c, &width)); err != nil {
		return nil, err
	}
	if err := failure(raw.Tsr_embedder_rows(c, nil, &count)); err != nil {
		return nil, err
	}
	values := make([]float32, count)
	if err := failure(raw.Tsr_embedder_rows(c, values, &count)); err != nil {
		return nil, err
	}
	return inRows(values, count, width)
}

// inRows cuts count numbers into rows.
func inRows(values []float32, count, width uint64) ([][]float32, error) {
	if count > uint64(len(values)) || width == 0 {
		return nil, &Error{Code: FailedPrecondition, Message: fmt.Sprintf("there are %d numbers, wanted %d: another goroutine used the embedder", count, len(values))}
	}
	all := make([][]float32, 0, count/width)
	for at := uint64(0); at < count; at += width {
		all = append(all, values[at:at+width:at+width])
	}
	return all, nil
}

// Labels are the names of a classifier's classes, in the order of a row; none for vectors.
func (e *Embedder) Labels() ([]string, error) {
	report, err := e.Report()
	if err != nil {
		return nil, err
	}
	var found struct{ Labels []string }
	if err := json.Unmarshal([]byte(report), &found); err != nil {
		return nil, err
	}
	return found.Labels, nil
}

// Report is JSON: texts, tokens, speed, plan, memory.
func (e *Embedder) Report() (string, error) { return (*handle)(e).text(raw.Tsr_embedder_report) }

// Cancel ends the Embed in progress on another goroutine with an Error of code Cancelled.
func (e *Embedder) Cancel() {
	c, done := (*handle)(e).use()
	defer done()
	raw.Tsr_embedder_cancel(c)
}

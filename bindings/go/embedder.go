package tessera

import (
	"encoding/json"
	"fmt"
	"strings"
	"tessera/raw"
)

// Embedder computes a row of numbers of each text: its vector, or what a classifier says of it. The header lists its
// options under tsr_embedder_new.
type Embedder handle

// Close frees it; see the package.
func (e *Embedder) Close() { (*handle)(e).close() }

// NewEmbedder plans, and prepares the devices.
func NewEmbedder(r *Runtime, model *Model, options Options) (*Embedder, error) {
	c, done := (*handle)(r).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	h, err := holdWith(raw.Tsr_embedder_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_embedder_new(c, modelC, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Embedder)(h), nil
}

// Embed gives a row for each text, or with option "pairs" for each two. progress, which may be nil, hears the share that
// is done now and then.
func (e *Embedder) Embed(texts []string, progress func(done float64)) ([][]float32, error) {
	c, done := (*handle)(e).use()
	defer done()
	lengths := make([]uint64, len(texts))
	for i, text := range texts {
		lengths[i] = uint64(len(text))
	}
	if err := failure(raw.Tsr_embedder_start(c, strings.Join(texts, ""), lengths)); err != nil {
		return nil, err
	}
	return rows(c, progress)
}

// EmbedTokens is Embed of token ids, which are read as they are.
func (e *Embedder) EmbedTokens(texts [][]int32, progress func(done float64)) ([][]float32, error) {
	c, done := (*handle)(e).use()
	defer done()
	var ids []int32
	lengths := make([]uint64, len(texts))
	for i, text := range texts {
		ids = append(ids, text...)
		lengths[i] = uint64(len(text))
	}
	if err := failure(raw.Tsr_embedder_start_ids(c, ids, lengths)); err != nil {
		return nil, err
	}
	return rows(c, progress)
}

// rows computes what was started.
func rows(c uintptr, progress func(done float64)) ([][]float32, error) {
	for share := 0.0; share < 1; {
		if err := failure(raw.Tsr_embedder_step(c, &share)); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(share)
		}
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
	if count != uint64(len(values)) {
		return nil, &Error{FailedPrecondition, fmt.Sprintf("there are %d numbers, wanted %d: another goroutine used the embedder", count, len(values))}
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
func (e *Embedder) Report() (string, error) {
	c, done := (*handle)(e).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_embedder_report(c, out) })
}

// Cancel ends the Embed in progress on another goroutine with an Error of code Cancelled.
func (e *Embedder) Cancel() {
	c, done := (*handle)(e).use()
	defer done()
	raw.Tsr_embedder_cancel(c)
}

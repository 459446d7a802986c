package tessera

import (
	"fmt"
	"tessera/raw"
)

// Scorer tells how likely given tokens are to a model. The header lists its options under tsr_scorer_new.
type Scorer handle

// Close frees it; see the package.
func (s *Scorer) Close() { (*handle)(s).close() }

// NewScorer plans, and prepares the devices.
func NewScorer(r *Runtime, model *Model, options Options) (*Scorer, error) {
	c, done := (*handle)(r).use()
	defer done()
	modelC, modelDone := (*handle)(model).use()
	defer modelDone()
	h, err := holdWith(raw.Tsr_scorer_free, options, func(o uintptr, out *uintptr) uintptr {
		return raw.Tsr_scorer_new(c, modelC, o, out)
	})
	if err != nil {
		return nil, err
	}
	return (*Scorer)(h), nil
}

// Scores are those of one text, a number for each token.
type Scores struct {
	// Natural logarithms of the tokens' probabilities; NaN for the first where nothing is before it.
	LogProbs []float32
	// Whether no token was likelier.
	Greedy []bool
}

// Score scores texts of token ids. progress, which may be nil, hears the share that is done now and then.
func (s *Scorer) Score(texts [][]int32, progress func(done float64)) ([]Scores, error) {
	c, done := (*handle)(s).use()
	defer done()
	var ids []int32
	lengths := make([]uint64, len(texts))
	for i, text := range texts {
		ids = append(ids, text...)
		lengths[i] = uint64(len(text))
	}
	if err := failure(raw.Tsr_scorer_start(c, ids, lengths)); err != nil {
		return nil, err
	}
	for share := 0.0; share < 1; {
		if err := failure(raw.Tsr_scorer_step(c, &share)); err != nil {
			return nil, err
		}
		if progress != nil {
			progress(share)
		}
	}
	logprobs, greedy := make([]float32, len(ids)), make([]byte, len(ids))
	var count uint64
	if err := failure(raw.Tsr_scorer_logprobs(c, logprobs, &count)); err != nil {
		return nil, err
	}
	if err := failure(raw.Tsr_scorer_greedy(c, greedy, &count)); err != nil {
		return nil, err
	}
	if count != uint64(len(ids)) {
		return nil, &Error{FailedPrecondition, fmt.Sprintf("%d tokens were scored, wanted %d: another goroutine used the scorer", count, len(ids))}
	}
	scores := make([]Scores, len(texts))
	begin := 0
	for i, text := range texts {
		end := begin + len(text)
		scores[i] = Scores{LogProbs: logprobs[begin:end:end], Greedy: make([]bool, len(text))}
		for j := range text {
			scores[i].Greedy[j] = greedy[begin+j] != 0
		}
		begin = end
	}
	return scores, nil
}

// Report is JSON: tokens, windows, speed, plan, memory.
func (s *Scorer) Report() (string, error) {
	c, done := (*handle)(s).use()
	defer done()
	return text(func(out *uintptr) uintptr { return raw.Tsr_scorer_report(c, out) })
}

// Cancel ends the Score in progress on another goroutine with an Error of code Cancelled.
func (s *Scorer) Cancel() {
	c, done := (*handle)(s).use()
	defer done()
	raw.Tsr_scorer_cancel(c)
}

package tessera

import (
	"context"
	"fmt"

	"tessera.dev/tessera/raw"
)

// Scorer tells how likely given tokens are to a model. The header lists its options under tsr_scorer_new.
type Scorer handle

// NewScorer plans, and prepares the devices.
func NewScorer(r *Runtime, model *Model, options Options) (*Scorer, error) {
	return NewScorerContext(context.Background(), r, model, options)
}

// NewScorerContext is NewScorer, which the context's end ends; see Runtime.Cancel.
func NewScorerContext(ctx context.Context, r *Runtime, model *Model, options Options) (*Scorer, error) {
	c, done := (*handle)(r).use()
	defer done()
	h, err := holdUntil(ctx, r, func() (*handle, error) {
		return (*handle)(model).holdWith(raw.Tsr_scorer_free, options, func(m, o uintptr, out *uintptr) uintptr {
			return raw.Tsr_scorer_new(c, m, o, out)
		})
	})
	return (*Scorer)(h), err
}

// Close frees it; see the package.
func (s *Scorer) Close() { (*handle)(s).close() }

// Scores are those of one text, a number for each token.
type Scores struct {
	// Natural logarithms of the tokens' probabilities; NaN for the first where nothing is before it.
	LogProbs []float32
	// Whether no token was likelier.
	Greedy []bool
}

// Score scores texts of token ids. progress, which may be nil, hears the share that is done now and then.
func (s *Scorer) Score(texts [][]int32, progress func(done float64)) ([]Scores, error) {
	return s.ScoreContext(context.Background(), texts, progress)
}

// ScoreContext is Score, which the context's end ends.
func (s *Scorer) ScoreContext(ctx context.Context, texts [][]int32, progress func(done float64)) ([]Scores, error) {
	c, done := (*handle)(s).use()
	defer done()
	ids, lengths := joinedIDs(texts)
	logprobs, greedy := make([]float32, len(ids)+1), make([]byte, len(ids)+1)
	if progress == nil {
		err := until(ctx, s.Cancel, func() error {
			return failure(raw.Tsr_scorer_score(c, ids, lengths, &logprobs[0], &greedy[0]))
		})
		if err != nil {
			return nil, err
		}
		return split(texts, logprobs, greedy), nil
	}
	if err := failure(raw.Tsr_scorer_start(c, ids, lengths)); err != nil {
		return nil, err
	}
	if err := shares(ctx, s.Cancel, c, raw.Tsr_scorer_step, progress); err != nil {
		return nil, err
	}
	var count uint64
	if err := failure(raw.Tsr_scorer_logprobs(c, logprobs, &count)); err != nil {
		return nil, err
	}
	if err := failure(raw.Tsr_scorer_greedy(c, greedy, &count)); err != nil {
		return nil, err
	}
	if count != uint64(len(ids)) {
		return nil, &Error{Code: FailedPrecondition, Message: fmt.Sprintf("%d tokens were scored, wanted %d: another goroutine used the scorer", count, len(ids))}
	}
	return split(texts, logprobs, greedy), nil
}

// Score scores texts with a scorer that is made for this call alone. Options: those of NewScorer.
func (m *Model) Score(r *Runtime, texts [][]int32, options Options) ([]Scores, error) {
	c, done := (*handle)(r).use()
	defer done()
	model, modelDone := (*handle)(m).use()
	defer modelDone()
	ids, lengths := joinedIDs(texts)
	logprobs, greedy := make([]float32, len(ids)+1), make([]byte, len(ids)+1)
	err := options.with(func(o uintptr) uintptr {
		return raw.Tsr_model_score(c, model, o, ids, lengths, &logprobs[0], &greedy[0])
	})
	if err != nil {
		return nil, err
	}
	return split(texts, logprobs, greedy), nil
}

// split gives each text its own numbers.
func split(texts [][]int32, logprobs []float32, greedy []byte) []Scores {
	scores := make([]Scores, len(texts))
	begin := 0
	for i, text := range texts {
		end := begin + len(text)
		scores[i] = newScores(logprobs[begin:end:end], greedy[begin:end])
		begin = end
	}
	return scores
}

func newScores(logprobs []float32, greedy []byte) Scores {
	scores := Scores{LogProbs: logprobs, Greedy: make([]bool, len(greedy))}
	for i, likeliest := range greedy {
		scores.Greedy[i] = likeliest != 0
	}
	return scores
}

// Report is JSON: tokens, windows, speed, plan, memory.
func (s *Scorer) Report() (string, error) { return (*handle)(s).text(raw.Tsr_scorer_report) }

// Cancel ends the Score in progress on another goroutine with an Error of code Cancelled.
func (s *Scorer) Cancel() {
	c, done := (*handle)(s).use()
	defer done()
	raw.Tsr_scorer_cancel(c)
}

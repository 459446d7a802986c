package tinker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/service/tuning"
)

// Prompt is what is continued, and how.
type Prompt struct {
	Tokens      []int32
	Samples     int
	MostTokens  int64 // 0: as many as there is room for
	Temperature float64
	TopK        int64 // below 1: any
	TopP        float64
	Seed        *int64
	StopTexts   []string
	StopTokens  []int32
	Endless     bool // no token of the model's own ends a text
	// Log probabilities of the prompt's tokens, of the last Scored of them; and of the likeliest tokens at each place.
	Score     bool
	Scored    int // 0: all
	TopPrompt int
	TopSample int
}

// Samples are the texts of a prompt.
type Samples struct {
	Sequences []Sampled
	Prompt    []float32 // log probabilities, NaN where there is none; nil: not asked for
	TopPrompt [][]Likely
	Cached    int64
}

// Sampled is a text: the token that ended it is its last.
type Sampled struct {
	Tokens   []int32
	Logprobs []float32
	Top      [][]Likely
	Stopped  bool // else the text is as long as it may be
}

// Likely is a token at a place.
type Likely struct {
	Token   int32
	Logprob float32
}

const (
	mostSamples = 4096
	mostTop     = 20 // of the engine
	mostTexts   = 128
)

type sampleKey struct {
	sampler string
	number  int64
}

// sampleCall is a request for samples that may be repeated.
type sampleCall struct {
	digest [32]byte
	future *Future
}

func (p *Prompt) check() error {
	switch {
	case len(p.Tokens) == 0:
		return invalid("prompt", "found no tokens, wanted at least one")
	case p.Samples < 1 || p.Samples > mostSamples:
		return invalid("num_samples", "found %d, wanted 1 to %d", p.Samples, mostSamples)
	case p.TopPrompt < 0 || p.TopPrompt > mostTop:
		return invalid("topk_prompt_logprobs", "found %d, wanted 0 to %d", p.TopPrompt, mostTop)
	case p.TopSample < 0 || p.TopSample > mostTop:
		return invalid("topk_sample_logprobs", "found %d, wanted 0 to %d", p.TopSample, mostTop)
	case p.Scored < 0 || p.Scored > 0 && (!p.Score || p.Scored > len(p.Tokens)-1):
		return invalid("prompt_logprobs_last_n", "found %d, wanted 1 to %d, with prompt_logprobs", p.Scored, len(p.Tokens)-1)
	}
	return nil
}

// Sample asks a sampler, by its id with a number, or only by base or path.
func (s *Service) Sample(ctx context.Context, tenant, id string, given Numbered, base, path string, prompt Prompt) (*Future, error) {
	from := &Sampler{Tenant: tenant, Base: base, Path: path}
	var err error
	if id != "" {
		if from, err = s.Sampler(ctx, tenant, id); err == nil {
			_, err = s.session(ctx, tenant, from.Session)
		}
	} else {
		err = s.resolve(ctx, from)
	}
	if err == nil && from.Path != "" {
		_, err = s.checkpointAt(ctx, tenant, from.Path, SamplerWeights) // it may have expired
	}
	if err == nil {
		err = prompt.check()
	}
	if err != nil {
		return nil, err
	}
	key := sampleKey{id, given.Number}
	f := &Future{ID: tuning.NewID("fut_"), tenant: tenant, done: make(chan struct{})}
	for i := 0; i < prompt.Samples; i++ {
		f.Sequences = append(f.Sequences, fmt.Sprintf("%s-%d", f.ID, i))
	}
	live, end := context.WithCancel(s.hard)
	f.cancel = end
	s.mutex.Lock()
	if known := s.samples[key]; id != "" && known != nil {
		s.mutex.Unlock()
		end()
		if known.digest != given.Digest {
			return nil, &inference.Error{Kind: inference.Conflict, Code: "seq_id_reused", Param: "seq_id",
				Message: fmt.Sprintf("seq_id %d was used with another request of this sampler", given.Number)}
		}
		return known.future, nil
	}
	if id != "" {
		s.samples[key] = &sampleCall{given.Digest, f}
	}
	s.futures[f.ID] = f
	s.mutex.Unlock()
	s.begin(func(context.Context) {
		defer end()
		if result, err := s.sample(withFuture(live, f), from, &prompt); err != nil {
			f.finish(nil, err)
		} else {
			f.finish(result, nil)
		}
		if id != "" {
			s.complete(client{id, given.Number / clones}, f)
		}
	}, func() { end(); f.finish(nil, errStopping) })
	return f, nil
}

// dropSamples forgets requests whose results are forgotten.
func (s *Service) dropSamples(time.Time) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for key, one := range s.samples {
		if s.futures[one.future.ID] == nil {
			delete(s.samples, key)
		}
	}
}

// sample waits for room where there is none.
func (s *Service) sample(ctx context.Context, from *Sampler, prompt *Prompt) (*Samples, error) {
	for begun := time.Now(); ; {
		made, err := s.draw(ctx, from, prompt)
		var known *inference.Error
		if err == nil || !errors.As(err, &known) || known.Kind != inference.Limited && known.Kind != inference.Overloaded || time.Since(begun) > roomTime {
			return made, err
		}
		pause(ctx, known.Message)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-s.life.Done():
			return nil, errStopping
		case <-time.After(time.Second):
		}
		pause(ctx, "")
	}
}

func (s *Service) draw(ctx context.Context, from *Sampler, prompt *Prompt) (*Samples, error) {
	model, err := s.config.Models.Open(ctx, from.model())
	if err != nil {
		return nil, err
	}
	defer model.Release()
	made := &Samples{Sequences: make([]Sampled, prompt.Samples)}
	for first := 0; first < prompt.Samples; first += mostTexts {
		count := prompt.Samples - first
		if count > mostTexts {
			count = mostTexts
		}
		if err := s.drawSome(ctx, model, from, prompt, made, first, count); err != nil {
			return nil, err
		}
	}
	return made, nil
}

// drawSome draws as many texts as one request may have.
func (s *Service) drawSome(ctx context.Context, model inference.Model, from *Sampler, prompt *Prompt, made *Samples, first, count int) error {
	stream, err := model.Generate(ctx, inference.Request{Prompt: inference.Text{Tokens: prompt.Tokens}, Tenant: from.Tenant,
		Options: prompt.options(first, count)})
	if err != nil {
		return err
	}
	defer stream.Close()
	for {
		event, err := stream.Next(ctx)
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if event.Finish == inference.Failed {
			if event.Failure != nil {
				return event.Failure
			}
			return &inference.Error{Kind: inference.Internal, Message: "the text failed"}
		}
		if len(event.Prompt) > 0 && first == 0 {
			made.addPrompt(event.Prompt, prompt)
		}
		made.Sequences[first+event.Index].add(&event, prompt.TopSample)
	}
	used := stream.Usage()
	if first == 0 {
		made.hide(prompt)
		made.Cached = used.Cached
	}
	s.count(from.Tenant, from.Session, from.Base, PrefillTokens, used.Prompt-used.Cached)
	s.count(from.Tenant, from.Session, from.Base, CachedTokens, used.Cached)
	s.count(from.Tenant, from.Session, from.Base, SampledTokens, used.Generated)
	return nil
}

func (p *Prompt) options(first, count int) inference.Options {
	options := inference.Options{"n": count, "temperature": p.Temperature, "top_p": p.TopP, "logprobs": p.TopSample, "max_tokens": p.MostTokens,
		"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
	if p.TopK > 0 {
		options["top_k"] = p.TopK
	}
	if p.Seed != nil {
		options["seed"] = (*p.Seed + int64(first)) & math.MaxInt64
	}
	if p.Endless {
		options["ignore_eos"] = 1
	}
	if len(p.StopTexts) > 0 {
		text, _ := json.Marshal(p.StopTexts)
		options["stop"] = string(text)
	}
	if len(p.StopTokens) > 0 {
		text, _ := json.Marshal(p.StopTokens)
		options["stop_ids"] = string(text)
	}
	if first == 0 && (p.Score || p.TopPrompt > 0) {
		options["prompt_logprobs"] = p.TopPrompt
	}
	return options
}

func (t *Sampled) add(event *inference.Event, top int) {
	for i, token := range event.Tokens {
		if i < len(event.Probabilities) {
			t.take(event.Probabilities[i], top)
		} else {
			t.take(inference.TokenProbability{Token: token, Probability: math.Inf(-1)}, top)
		}
	}
	if event.StopToken != nil {
		t.take(*event.StopToken, top)
	}
	if event.Finish != "" {
		t.Stopped = event.Finish == inference.Stop
	}
}

func (t *Sampled) take(one inference.TokenProbability, top int) {
	t.Tokens = append(t.Tokens, one.Token)
	t.Logprobs = append(t.Logprobs, float32(one.Probability))
	if top > 0 {
		t.Top = append(t.Top, likely(one.Likeliest))
	}
}

func likely(all []inference.TokenProbability) []Likely {
	made := make([]Likely, 0, len(all))
	for _, one := range all {
		made = append(made, Likely{one.Token, float32(one.Probability)})
	}
	return made
}

func (t *Samples) addPrompt(tokens []inference.TokenProbability, prompt *Prompt) {
	for _, one := range tokens {
		if prompt.Score {
			t.Prompt = append(t.Prompt, float32(one.Probability))
		}
		if prompt.TopPrompt > 0 {
			t.TopPrompt = append(t.TopPrompt, likely(one.Likeliest))
		}
	}
}

// hide leaves out what comes before the tokens that were asked for.
func (t *Samples) hide(prompt *Prompt) {
	if prompt.Scored == 0 {
		return
	}
	for i := 0; i < len(t.Prompt)-prompt.Scored; i++ {
		t.Prompt[i] = float32(math.NaN())
	}
	for i := 0; i < len(t.TopPrompt)-prompt.Scored; i++ {
		t.TopPrompt[i] = nil
	}
}

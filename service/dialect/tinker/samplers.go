package tinker

import (
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/tinker"
)

func (s *service) createSampler(call *dialect.Call) (any, error) {
	given, err := body(call, "create_sampling_session")
	if err != nil {
		return nil, err
	}
	session, at := given.NeedText("session_id"), number(given, "sampling_session_seq_id", 0)
	base, _ := given.Text("base_model")
	path, _ := given.Text("model_path")
	if err := given.Done(); err != nil {
		return nil, err
	}
	id, err := s.work.NewSampler(call.Context, call.Tenant, session, at, base, path)
	return map[string]any{"type": "create_sampling_session", "sampling_session_id": id}, err
}

// joinSampler gives a clone of a client a number of its own.
func (s *service) joinSampler(call *dialect.Call) (any, error) {
	given, err := body(call, "join_sampling_session")
	if err != nil {
		return nil, err
	}
	id := given.NeedText("sampling_session_id")
	if err := given.Done(); err != nil {
		return nil, err
	}
	count, err := s.work.Join(call.Context, call.Tenant, id)
	return map[string]any{"type": "join_sampling_session", "client_counter": count}, err
}

func (s *service) sampler(call *dialect.Call) (any, error) {
	found, err := s.work.Sampler(call.Context, call.Tenant, call.Names["id"])
	if err != nil {
		return nil, err
	}
	made := map[string]any{"sampler_id": found.ID, "base_model": found.Base}
	if found.Path != "" {
		made["model_path"] = found.Path
	}
	return made, nil
}

// sample reads a request for samples.
func (s *service) sample(call *dialect.Call) (any, error) {
	given, err := body(call, "sample")
	if err != nil {
		return nil, err
	}
	id, _ := given.Text("sampling_session_id")
	base, _ := given.Text("base_model")
	path, _ := given.Text("model_path")
	at, numberGiven := given.Integer("seq_id", 0, mostNumber)
	if id != "" && !numberGiven {
		given.Fail("seq_id", fields.Missing, "is missing; with sampling_session_id a number is wanted")
	}
	prompt := tinker.Prompt{Tokens: jsonTokens(given.NeedObject("prompt")), Samples: 1}
	if count, ok := given.Integer("num_samples", 1, 4096); ok {
		prompt.Samples = int(count)
	}
	readSampling(given.NeedObject("sampling_params"), &prompt)
	prompt.Score, _ = given.Flag("prompt_logprobs")
	for name, value := range map[string]*int{"topk_prompt_logprobs": &prompt.TopPrompt, "topk_sample_logprobs": &prompt.TopSample,
		"prompt_logprobs_last_n": &prompt.Scored} {
		if found, ok := given.Integer(name, 0, 1<<24); ok {
			*value = int(found)
		}
	}
	given.Refuse("target_prompt_logprobs", "prompt_logprobs and topk_prompt_logprobs are served")
	given.Only("prompt_alt_tokens_k", "0")
	given.Only("record_stability_info", "false")
	if err := given.Done(); err != nil {
		return nil, err
	}
	return future(s.work.Sample(call.Context, call.Tenant, id, numbered(call, at), base, path, prompt))
}

// readSampling reads the settings of the sampling, whose defaults are Tinker's.
func readSampling(given *fields.Object, prompt *tinker.Prompt) {
	prompt.Temperature, prompt.TopP = 1, 1
	prompt.MostTokens, _ = given.Integer("max_tokens", 1, 1<<24)
	if value, ok := given.Number("temperature", 0, 100); ok {
		prompt.Temperature = value
	}
	if value, ok := given.Number("top_p", 0, 1); ok {
		prompt.TopP = value
	}
	prompt.TopK, _ = given.Integer("top_k", -1, 1<<24)
	if value, ok := given.Integer("seed", math.MinInt64, math.MaxInt64); ok {
		value &= math.MaxInt64
		prompt.Seed = &value
	}
	if stop, ok := given.Value("stop"); ok {
		readStop(stop, prompt)
	}
	_ = given.Done()
}

// readStop reads what ends a text: one text, texts, or tokens; an empty list: nothing, not even the model's own tokens.
func readStop(stop fields.Value, prompt *tinker.Prompt) {
	if stop.Kind() == fields.Text {
		prompt.StopTexts = []string{stop.Text()}
		return
	}
	first, any := stop.First()
	switch {
	case !any:
		stop.List(0, 0) // no other type
		prompt.Endless = true
	case first.Kind() == fields.Text:
		prompt.StopTexts = stop.Texts(1, 1024)
	default:
		prompt.StopTokens = stop.Tokens(1, 4096)
	}
}

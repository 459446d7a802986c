package chat

import "tessera.dev/service/inference"

// timings are those of llama.cpp, which a request asks for by timings_per_token. They are told once, at the end.
type timings struct {
	Cached             int64   `json:"cache_n"`
	Prompt             int64   `json:"prompt_n"` // computed: without those that were cached
	PromptTime         float64 `json:"prompt_ms"`
	PromptTokenTime    float64 `json:"prompt_per_token_ms"`
	PromptSpeed        float64 `json:"prompt_per_second"`
	Generated          int64   `json:"predicted_n"`
	GeneratedTime      float64 `json:"predicted_ms"`
	GeneratedTokenTime float64 `json:"predicted_per_token_ms"`
	GeneratedSpeed     float64 `json:"predicted_per_second"`
}

func newTimings(used []inference.Usage) *timings {
	t := &timings{}
	for _, each := range used {
		t.Cached += each.Cached
		t.Prompt += each.Prompt - each.Cached
		t.PromptTime += each.Prefill * 1000
		t.Generated += each.Generated
		t.GeneratedTime += each.Decode * 1000
	}
	t.PromptTokenTime, t.PromptSpeed = rates(t.Prompt, t.PromptTime)
	t.GeneratedTokenTime, t.GeneratedSpeed = rates(t.Generated, t.GeneratedTime)
	return t
}

// rates are the milliseconds of a token and the tokens of a second; 0 where there is nothing to divide.
func rates(tokens int64, milliseconds float64) (each, speed float64) {
	if tokens == 0 || milliseconds == 0 {
		return 0, 0
	}
	return milliseconds / float64(tokens), float64(tokens) * 1000 / milliseconds
}

package openai

import (
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

// Usage is the usage object of chat and completions, which counts tokens.
type Usage struct {
	Prompt            int64              `json:"prompt_tokens"`
	Completion        int64              `json:"completion_tokens"`
	Total             int64              `json:"total_tokens"`
	PromptDetails     *PromptDetails     `json:"prompt_tokens_details,omitempty"`
	CompletionDetails *CompletionDetails `json:"completion_tokens_details,omitempty"`
}

// PromptDetails counts the prompt's tokens that were cached.
type PromptDetails struct {
	Cached int64 `json:"cached_tokens"`
}

// CompletionDetails counts the generated tokens of the reasoning.
type CompletionDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// Add adds the tokens of an event to the counts; the details are known only at the end.
func (u *Usage) Add(event inference.Event) {
	u.Completion += int64(len(event.Tokens))
	u.Total += int64(len(event.Tokens))
}

// Streaming has the settings `stream` and `stream_options` of a request for chat or completions.
type Streaming struct {
	Streamed    bool // as chunks
	TellsUsage  bool // the usage comes at the end of a stream; replies in one piece always have it
	CountsUsage bool // each chunk has the usage so far
}

// ReadStreaming reads stream and stream_options.
func ReadStreaming(body *fields.Object) (s Streaming) {
	s.Streamed, _ = body.Flag("stream")
	if options, ok := body.Object("stream_options"); ok {
		s.TellsUsage, _ = options.Flag("include_usage")
		options.Flag("include_obfuscation") // pads chunks with texts of no meaning, which may be left out
		s.CountsUsage, _ = options.Flag("continuous_usage_stats")
		s.TellsUsage = s.TellsUsage || s.CountsUsage
		options.Done()
	}
	return s
}

// SumUsage returns the sum of the usage of several requests.
func SumUsage(usage []inference.Usage) Usage {
	var sum inference.Usage
	for _, each := range usage {
		sum.Prompt += each.Prompt
		sum.Cached += each.Cached
		sum.Generated += each.Generated
		sum.Reasoning += each.Reasoning
	}
	return Usage{sum.Prompt, sum.Generated, sum.Prompt + sum.Generated, &PromptDetails{sum.Cached}, &CompletionDetails{sum.Reasoning}}
}

package responses

import (
	"encoding/json"
	"fmt"
	"math"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

// object is the response object. Open Responses wants every member, null or not.
type object struct {
	ID                string          `json:"id"`
	Object            string          `json:"object"`
	CreatedAt         int64           `json:"created_at"`
	CompletedAt       *int64          `json:"completed_at"`
	Status            string          `json:"status"`
	IncompleteDetails *incomplete     `json:"incomplete_details"`
	Model             string          `json:"model"`
	PreviousID        *string         `json:"previous_response_id"`
	Instructions      *string         `json:"instructions"`
	Output            []any           `json:"output"`
	Error             *failure        `json:"error"`
	Tools             []functionTool  `json:"tools"`
	ToolChoice        any             `json:"tool_choice"`
	Truncation        string          `json:"truncation"`
	ParallelToolCalls bool            `json:"parallel_tool_calls"`
	Text              textField       `json:"text"`
	TopP              float64         `json:"top_p"`
	PresencePenalty   float64         `json:"presence_penalty"`
	FrequencyPenalty  float64         `json:"frequency_penalty"`
	TopLogprobs       int64           `json:"top_logprobs"`
	Temperature       float64         `json:"temperature"`
	Reasoning         reasoningField  `json:"reasoning"`
	Usage             *usage          `json:"usage"`
	MaxOutputTokens   *int64          `json:"max_output_tokens"`
	MaxToolCalls      *int64          `json:"max_tool_calls"`
	Store             bool            `json:"store"`
	Background        bool            `json:"background"`
	ServiceTier       string          `json:"service_tier"`
	Metadata          json.RawMessage `json:"metadata"`
	SafetyIdentifier  *string         `json:"safety_identifier"`
	PromptCacheKey    *string         `json:"prompt_cache_key"`
}

type incomplete struct {
	Reason string `json:"reason"`
}

type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type usage struct {
	Input        int64         `json:"input_tokens"`
	InputDetails inputDetails  `json:"input_tokens_details"`
	Output       int64         `json:"output_tokens"`
	Details      outputDetails `json:"output_tokens_details"`
	Total        int64         `json:"total_tokens"`
}

type inputDetails struct {
	Cached  int64 `json:"cached_tokens"`
	Written int64 `json:"cache_write_tokens"`
}

type outputDetails struct {
	Reasoning int64 `json:"reasoning_tokens"`
}

// newObject returns a response object with OpenAI's defaults of the members that a request may set.
func newObject(call *dialect.Call) object {
	return object{
		ID: "resp_" + call.ID, Object: "response", CreatedAt: call.Now.Unix(), Status: "in_progress", Output: []any{},
		Tools: []functionTool{}, ToolChoice: "auto", Truncation: "disabled", ParallelToolCalls: true,
		Text: textField{Format: plainFormat{"text"}}, TopP: 1, Temperature: 1, ServiceTier: "default", Metadata: json.RawMessage("{}"),
	}
}

// complete sets the usage, and the time of completion: that of creation and the seconds of queue, prompt and text.
func (o *object) complete(used []inference.Usage) {
	var sum usage
	seconds := 0.0
	for _, each := range used {
		sum.Input += each.Prompt
		sum.InputDetails.Cached += each.Cached
		sum.Output += each.Generated
		sum.Details.Reasoning += each.Reasoning
		seconds += each.Queue + each.Prefill + each.Decode
	}
	sum.Total = sum.Input + sum.Output
	o.Usage = &sum
	at := o.CreatedAt + int64(math.Ceil(seconds))
	o.CompletedAt = &at
}

// Items of the output.
type messageItem struct {
	ID      string       `json:"id"`
	Type    string       `json:"type"`
	Status  string       `json:"status"`
	Role    string       `json:"role"`
	Content []outputText `json:"content"`
}

type outputText struct {
	Type        string                    `json:"type"`
	Text        string                    `json:"text"`
	Annotations []any                     `json:"annotations"`
	Logprobs    []openai.PlaceProbability `json:"logprobs"`
}

type callItem struct {
	ID        string `json:"id"`
	Type      string `json:"type"`
	Status    string `json:"status"`
	CallID    string `json:"call_id"`
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

type reasoningItem struct {
	ID        string     `json:"id"`
	Type      string     `json:"type"`
	Summary   []textPart `json:"summary"`
	Content   []textPart `json:"content,omitempty"`
	Encrypted string     `json:"encrypted_content,omitempty"`
}

type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// itemID returns an id for the next item, unique in the response; its prefix names the item's kind, as in OpenAI's ids.
func (o *object) itemID(prefix string) string {
	return fmt.Sprintf("%s_%s%02d", prefix, o.ID[len("resp_"):], len(o.Output))
}

package messages

import (
	"encoding/json"

	"tessera.dev/service/inference"
)

// message is the reply.
type message struct {
	ID           string  `json:"id"`
	Type         string  `json:"type"`
	Role         string  `json:"role"`
	Model        string  `json:"model"`
	Content      []any   `json:"content"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
	StopDetails  *string `json:"stop_details"` // never: nothing is refused by a classifier
	Container    *string `json:"container"`    // never: no code is run
	Usage        usage   `json:"usage"`
}

// usage counts tokens. Those of the prompt that the cache had are apart.
type usage struct {
	Input         int64    `json:"input_tokens"`
	CacheCreation *int64   `json:"cache_creation"`
	Created       int64    `json:"cache_creation_input_tokens"`
	Read          int64    `json:"cache_read_input_tokens"`
	Output        int64    `json:"output_tokens"`
	Details       *details `json:"output_tokens_details"`
	Place         *string  `json:"inference_geo"`
	Tools         *string  `json:"server_tool_use"`
	Tier          string   `json:"service_tier"`
}

type details struct {
	Thinking int64 `json:"thinking_tokens"`
}

func newUsage(used []inference.Usage) usage {
	sum := usage{Tier: "standard", Details: &details{}}
	for _, each := range used {
		sum.Input += each.Prompt - each.Cached
		sum.Read += each.Cached
		sum.Output += each.Generated
		sum.Details.Thinking += each.Reasoning
	}
	return sum
}

// shortUsage is that of message_delta.
type shortUsage struct {
	Input   int64    `json:"input_tokens"`
	Created int64    `json:"cache_creation_input_tokens"`
	Read    int64    `json:"cache_read_input_tokens"`
	Output  int64    `json:"output_tokens"`
	Details *details `json:"output_tokens_details"`
	Tools   *string  `json:"server_tool_use"`
}

func deltaUsage(u usage) shortUsage {
	return shortUsage{Input: u.Input, Created: u.Created, Read: u.Read, Output: u.Output, Details: u.Details}
}

// Blocks of the content.
type textBlock struct {
	Type      string  `json:"type"`
	Text      string  `json:"text"`
	Citations *string `json:"citations"` // never
}

type thinkingBlock struct {
	Type      string `json:"type"`
	Thinking  string `json:"thinking"`
	Signature string `json:"signature"`
}

type toolBlock struct {
	Type   string          `json:"type"`
	ID     string          `json:"id"`
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input"`
	Caller plain           `json:"caller"`
}

// Events.
type plain struct {
	Type string `json:"type"`
}

type start struct {
	Type    string  `json:"type"`
	Message message `json:"message"`
}

type blockStart struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Block any    `json:"content_block"`
}

type blockDelta struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
	Delta any    `json:"delta"`
}

type blockStop struct {
	Type  string `json:"type"`
	Index int    `json:"index"`
}

type textDelta struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

type thinkingDelta struct {
	Type     string `json:"type"`
	Thinking string `json:"thinking"`
}

type signatureDelta struct {
	Type      string `json:"type"`
	Signature string `json:"signature"`
}

type inputDelta struct {
	Type string `json:"type"`
	Part string `json:"partial_json"`
}

type messageDelta struct {
	Type  string     `json:"type"`
	Delta ending     `json:"delta"`
	Usage shortUsage `json:"usage"`
}

type ending struct {
	Container    *string `json:"container"`
	StopDetails  *string `json:"stop_details"`
	StopReason   *string `json:"stop_reason"`
	StopSequence *string `json:"stop_sequence"`
}

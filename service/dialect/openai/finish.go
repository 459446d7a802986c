package openai

import "tessera.dev/service/inference"

// FinishReason returns the finish_reason of chat and completions: "length" for a text that was cut or cancelled, else "tool_calls"
// if it has calls, else "stop". A text without calls never has "tool_calls", at which clients wait for calls.
func FinishReason(finish inference.Finish, calls int) string {
	switch {
	case finish == inference.Length || finish == inference.Cancelled:
		return "length"
	case calls > 0:
		return "tool_calls"
	}
	return "stop"
}

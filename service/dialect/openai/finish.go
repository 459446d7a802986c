package openai

import "tessera.dev/service/inference"

// FinishReason is that of chat and completions. "tool_calls" is said of texts with calls alone, since clients wait for calls
// otherwise; a text that was cut has "length", also where it was cancelled.
func FinishReason(finish inference.Finish, calls int) string {
	switch {
	case finish == inference.Length || finish == inference.Cancelled:
		return "length"
	case calls > 0:
		return "tool_calls"
	}
	return "stop"
}

package models

import (
	"encoding/json"
	"math"
	"strings"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// likeliest is one of the likeliest tokens; a null log probability is a probability of 0.
type likeliest struct {
	Token   int32
	LogProb *float64
}

// tokenDetails are the details of an event with a token, and of a prompt's token.
type tokenDetails struct {
	Token     int32 // of a prompt's
	LogProb   *float64
	Top       []likeliest
	Reasoning string
}

// endDetails are the details of the event that ends a text.
type endDetails struct {
	Prompt    int64       `json:"prompt_tokens"`
	Cached    int64       `json:"cached_tokens"`
	Tokens    int64       `json:"tokens"`
	Reasoning int64       `json:"reasoning_tokens"`
	Seed      int64       `json:"seed"`
	Waited    float64     `json:"waited_seconds"`
	First     float64     `json:"first_token_seconds"`
	Seconds   float64     `json:"seconds"`
	StopToken *int32      `json:"stop_token"`
	StopLog   *float64    `json:"stop_logprob"`
	StopTop   []likeliest `json:"stop_top"`
	Message   *message    `json:"message"`
	Error     *struct {
		Code    tessera.Code
		Message string
	} `json:"error"`
}

// message has the tool calls of an answer.
type message struct {
	Calls []struct {
		ID       string
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
	CutCall *inference.ToolCall `json:"cut_call"`
}

// split turns an event of the engine into one for dialects.
func (s *stream) split(event tessera.Event) (made inference.Event, err error) {
	made = inference.Event{Index: event.Index, Text: event.Text}
	switch event.Kind {
	case tessera.EventToken:
		err = s.splitToken(event, &made)
	case tessera.EventPrompt:
		err = s.splitPrompt(event, &made)
	default:
		err = s.splitEnd(event, &made)
	}
	return made, err
}

func (s *stream) splitToken(event tessera.Event, made *inference.Event) error {
	if event.Token >= 0 {
		made.Tokens = []int32{event.Token}
		if s.tails != nil {
			s.tails[event.Index] = keepTail(append(s.tails[event.Index], event.Token))
		}
	}
	if event.Details == "" {
		return nil
	}
	var details tokenDetails
	if err := json.Unmarshal([]byte(event.Details), &details); err != nil {
		return internal(err)
	}
	made.Reasoning = details.Reasoning
	if details.LogProb != nil || details.Top != nil {
		made.Probabilities = []inference.TokenProbability{s.probability(event.Token, &details)}
	}
	return nil
}

// keepTail bounds the tokens that are kept for finding the text that ended an answer.
func keepTail(tokens []int32) []int32 {
	const most = 256
	if len(tokens) < 2*most {
		return tokens
	}
	return append(tokens[:0], tokens[len(tokens)-most:]...)
}

func (s *stream) splitPrompt(event tessera.Event, made *inference.Event) error {
	var details struct {
		First  int
		Tokens []tokenDetails
	}
	if err := json.Unmarshal([]byte(event.Details), &details); err != nil {
		return internal(err)
	}
	for i := range details.Tokens {
		one := s.probability(details.Tokens[i].Token, &details.Tokens[i])
		if details.First+i == 0 {
			one.Probability, one.Likeliest = math.NaN(), nil
		}
		made.Prompt = append(made.Prompt, one)
	}
	return nil
}

func (s *stream) probability(token int32, details *tokenDetails) inference.TokenProbability {
	made := inference.TokenProbability{Token: token, Bytes: s.loaded.pieces.piece(token), Probability: logarithm(details.LogProb)}
	for _, one := range details.Top {
		made.Likeliest = append(made.Likeliest,
			inference.TokenProbability{Token: one.Token, Bytes: s.loaded.pieces.piece(one.Token), Probability: logarithm(one.LogProb)})
	}
	return made
}

func logarithm(given *float64) float64 {
	if given == nil {
		return math.Inf(-1)
	}
	return *given
}

func internal(err error) error {
	return &inference.Error{Kind: inference.Internal, Message: err.Error()}
}

var finishes = map[tessera.Finish]inference.Finish{tessera.FinishStop: inference.Stop, tessera.FinishLength: inference.Length,
	tessera.FinishCancelled: inference.Cancelled, tessera.FinishFailed: inference.Failed}

func (s *stream) splitEnd(event tessera.Event, made *inference.Event) error {
	var details endDetails
	if event.Details != "" {
		if err := json.Unmarshal([]byte(event.Details), &details); err != nil {
			return internal(err)
		}
	}
	made.Finish = finishes[event.Finish]
	if made.Finish == "" {
		made.Finish = inference.Stop
	}
	if made.Finish == inference.Failed {
		made.Failure = &inference.Error{Kind: inference.Internal, Message: "the text failed"}
		if details.Error != nil {
			failed := serviceError(&tessera.Error{Code: details.Error.Code, Message: details.Error.Message})
			made.Failure, _ = failed.(*inference.Error)
		}
	}
	made.Calls = details.calls()
	if details.Message != nil && details.Message.CutCall != nil && details.Message.CutCall.Name != "" {
		made.CutCall = details.Message.CutCall // without a name nothing is to be shown
	}
	if len(made.Calls) > 0 && made.Finish == inference.Stop {
		made.Finish = inference.ToolCalls
	}
	if details.StopToken != nil {
		ended := s.probability(*details.StopToken, &tokenDetails{LogProb: details.StopLog, Top: details.StopTop})
		made.StopToken = &ended
	}
	if made.Finish == inference.Stop && details.StopToken == nil {
		made.StopText = s.stopText(event.Index)
	}
	s.count(&details)
	return nil
}

func (d *endDetails) calls() (calls []inference.ToolCall) {
	if d.Message == nil {
		return nil
	}
	for _, call := range d.Message.Calls {
		arguments := string(call.Function.Arguments)
		if arguments == "" || arguments == "null" {
			arguments = "{}"
		}
		calls = append(calls, inference.ToolCall{ID: call.ID, Name: call.Function.Name, Arguments: arguments})
	}
	return calls
}

func (s *stream) count(details *endDetails) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if details.Prompt > 0 {
		s.usage.Prompt, s.usage.Cached = details.Prompt, details.Cached
	}
	s.usage.Generated += details.Tokens
	s.usage.Reasoning += details.Reasoning
	s.usage.Seed = details.Seed
	s.usage.Queue = details.Waited
	if prefill := details.First - details.Waited; prefill > s.usage.Prefill {
		s.usage.Prefill = prefill
	}
	if decode := details.Seconds - details.First; decode > s.usage.Decode {
		s.usage.Decode = decode
	}
}

// stopText returns the text of the option stop that ended an answer: the only one, or the one that its tokens hold last.
func (s *stream) stopText(index int) string {
	if len(s.stops) == 1 {
		return s.stops[0]
	}
	if len(s.stops) == 0 {
		return ""
	}
	var text strings.Builder
	for _, token := range s.tails[index] {
		text.Write(s.loaded.pieces.piece(token))
	}
	found, end := "", -1
	for _, stop := range s.stops {
		if at := strings.LastIndex(text.String(), stop); at >= 0 && at+len(stop) > end {
			found, end = stop, at+len(stop)
		}
	}
	return found
}

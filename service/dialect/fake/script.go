package fake

import (
	"encoding/json"
	"math"
	"regexp"
	"strings"

	"tessera.dev/service/inference"
)

// Scripted has "tiny", a chat model, and "base", one without template, which follow ByWords.
func Scripted() *Models {
	return &Models{Script: ByWords, Prefixes: true, Known: []inference.Info{
		{Name: "tiny", Created: 1700000000, Loaded: true, Context: 4096, Does: []string{"generate", "chat"}, Architecture: "qwen3",
			Parameters: 134515008, Bytes: 144811008, Type: "q8_0", Template: "{% if tools %}...{% endif %}<think>{{ messages }}"},
		{Name: "base", Created: 1700000001, Context: 2048, Does: []string{"generate", "embed"}, Architecture: "llama",
			Parameters: 8030261248, Bytes: 16060522496, Type: "bf16"},
	}}
}

// message is what scripts read of one.
type message struct {
	Role, Content string
}

// reminder is what Claude Code puts before and behind the user's words.
var reminder = regexp.MustCompile(`(?s)<system-reminder>.*?</system-reminder>`)

func lastWords(request inference.Request) message {
	if request.Messages == nil {
		return message{"user", request.Prompt.Words}
	}
	var messages []message
	if err := json.Unmarshal(request.Messages, &messages); err != nil || len(messages) == 0 {
		return message{}
	}
	last := messages[len(messages)-1]
	last.Content = strings.TrimSpace(reminder.ReplaceAllString(last.Content, ""))
	if at := strings.LastIndex(last.Content, "\n\n"); at >= 0 {
		last.Content = last.Content[at+2:]
	}
	return last
}

func firstTool(request inference.Request) string {
	var tools []struct{ Function struct{ Name string } }
	text, _ := request.Options["tools"].(string)
	_ = json.Unmarshal([]byte(text), &tools)
	if len(tools) == 0 || request.ToolChoice == "none" {
		return ""
	}
	if request.ToolName != "" {
		return request.ToolName
	}
	return tools[0].Function.Name
}

// ByWords answers as words of the last paragraph of the last message say:
//
//	weather   a call of the first tool, where there are tools and no result yet
//	twice     two of them
//	think     reasoning before the text; so does "reasoning"
//	cut       the last call is cut by the limit of tokens
//	long      ends by the limit of tokens
//	halt      ends by the first of `stop`
//	break     fails after a piece of text
//	refuse    is refused
//	empty     an answer without text
func ByWords(request inference.Request) ([]inference.Event, error) {
	last := lastWords(request)
	if strings.Contains(last.Content, "refuse") {
		return nil, &inference.Error{Kind: inference.Invalid, Code: "context_length_exceeded", Message: "the prompt has 5000 tokens; the context has 4096"}
	}
	s := &script{}
	s.follow(request, last)
	if request.Options["logprobs"] != nil {
		s.weigh()
	}
	for i := range s.events {
		event := &s.events[i]
		if event.Text != "" || event.Reasoning != "" {
			event.Tokens = []int32{5}
		}
		if event.CutCall != nil {
			event.Tokens = append(event.Tokens, 5, 5, 5)
		}
		for range event.Calls {
			event.Tokens = append(event.Tokens, 5, 5, 5, 5, 5)
		}
	}
	return s.events, nil
}

type script struct{ events []inference.Event }

func (s *script) say(texts ...string) {
	for _, text := range texts {
		s.events = append(s.events, inference.Event{Text: text})
	}
}

func (s *script) end(finish inference.Finish) {
	s.events = append(s.events, inference.Event{Finish: finish})
}

func (s *script) follow(request inference.Request, last message) {
	has := func(word string) bool { return strings.Contains(last.Content, word) }
	if has("think") || has("reasoning") {
		s.events = append(s.events, inference.Event{Reasoning: "Let me "}, inference.Event{Reasoning: "see."})
	}
	tool := firstTool(request)
	if obliged := request.ToolChoice == "required" || request.ToolChoice == "named"; tool != "" && last.Role != "tool" && (obliged || has("weather")) {
		if !obliged {
			s.say("I look.")
		}
		calls := []inference.ToolCall{{ID: "call00001", Name: tool, Arguments: `{"location":"Rome"}`}}
		if has("twice") {
			calls = append(calls, inference.ToolCall{ID: "call00002", Name: tool, Arguments: `{"location":"Oslo"}`})
		}
		if !has("cut") {
			s.events = append(s.events, inference.Event{Calls: calls})
			s.end(inference.ToolCalls)
			return
		}
		last := calls[len(calls)-1]
		last.Arguments = `{"location":"Rome","days":[1,2],"why":"to se`
		s.events = append(s.events, inference.Event{Calls: calls[:len(calls)-1], CutCall: &last, Finish: inference.Length})
		return
	}
	switch {
	case has("empty"):
		s.end(inference.Stop)
	case has("break"):
		s.say("Half")
		s.events = append(s.events, inference.Event{Finish: inference.Failed,
			Failure: &inference.Error{Kind: inference.Internal, Code: "values_lost", Message: "the device failed"}})
	case has("halt") && request.Options["stop"] != nil:
		var stops []string
		text, _ := request.Options["stop"].(string)
		_ = json.Unmarshal([]byte(text), &stops)
		s.say("One ")
		s.events = append(s.events, inference.Event{Finish: inference.Stop, StopText: stops[0]})
	case has("long"):
		s.say("And ", "so ")
		s.end(inference.Length)
	case request.Options["json_schema"] != nil || request.Options["json"] != nil:
		s.say(`{"name":`, `"Ada","age"`, `:36}`)
		s.end(inference.Stop)
	default:
		s.say("Hello", " <there>", "!")
		s.end(inference.Stop)
	}
}

// weigh gives texts log probabilities.
func (s *script) weigh() {
	for i, event := range s.events {
		if event.Text != "" {
			s.events[i].Probabilities = []inference.TokenProbability{{Token: 5, Bytes: []byte(event.Text), Probability: -0.5,
				Likeliest: []inference.TokenProbability{{Token: 5, Bytes: []byte(event.Text), Probability: -0.5},
					{Token: 6, Bytes: []byte{0xff}, Probability: math.Inf(-1)}}}}
		}
	}
}

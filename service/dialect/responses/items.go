package responses

import (
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/inference"
)

func probabilities(places []inference.TokenProbability) *[]openai.PlaceProbability {
	shown := openai.Probabilities(places)
	return &shown
}

// turn ends the item in progress where it is of another kind, and begins one of this kind.
func (x *exchange) turn(kind part) {
	if x.open == kind {
		return
	}
	x.close(true)
	x.open = kind
	x.text.Reset()
	x.places = nil
	switch kind {
	case thought:
		x.id = x.response.itemID("rs")
		x.emit("response.output_item.added", event{OutputIndex: x.index(), Item: reasoningItem{ID: x.id, Type: "reasoning", Summary: []textPart{}}})
		if x.summarized() {
			x.emit("response.reasoning_summary_part.added", event{ItemID: x.id, OutputIndex: x.index(), SummaryIndex: &zero, Part: textPart{"summary_text", ""}})
		} else {
			x.emit("response.content_part.added", event{ItemID: x.id, OutputIndex: x.index(), ContentIndex: &zero, Part: textPart{"reasoning_text", ""}})
		}
	case words:
		x.id = x.response.itemID("msg")
		x.emit("response.output_item.added", event{OutputIndex: x.index(),
			Item: messageItem{ID: x.id, Type: "message", Status: "in_progress", Role: "assistant", Content: []outputText{}}})
		x.emit("response.content_part.added", event{ItemID: x.id, OutputIndex: x.index(), ContentIndex: &zero, Part: newOutputText("", nil)})
	}
}

// summarized says whether the request asked for summaries: clients that do show no other reasoning.
func (x *exchange) summarized() bool { return x.echo.Reasoning.Summary != nil }

func newOutputText(text string, places []inference.TokenProbability) outputText {
	return outputText{Type: "output_text", Text: text, Annotations: []any{}, Logprobs: openai.Probabilities(places)}
}

func (x *exchange) think(text string) {
	x.text.WriteString(text)
	if x.summarized() {
		x.emit("response.reasoning_summary_text.delta", event{ItemID: x.id, OutputIndex: x.index(), SummaryIndex: &zero, Delta: &text})
	} else {
		x.emit("response.reasoning_text.delta", event{ItemID: x.id, OutputIndex: x.index(), ContentIndex: &zero, Delta: &text})
	}
}

func (x *exchange) say(text string) {
	x.text.WriteString(text)
	x.emit("response.output_text.delta", event{ItemID: x.id, OutputIndex: x.index(), ContentIndex: &zero, Delta: &text, Logprobs: probabilities(x.pending)})
	x.places = append(x.places, x.pending...)
	x.pending = nil
}

// call adds an item for a call. One that was cut has the status incomplete, and its arguments as far as they go.
func (x *exchange) call(call inference.ToolCall, status string) {
	if x.mostCalls >= 0 && x.calls >= x.mostCalls {
		return
	}
	x.turn(nothing)
	x.calls++
	item := callItem{ID: x.response.itemID("fc"), Type: "function_call", Status: "in_progress", CallID: call.ID, Name: call.Name}
	if item.CallID == "" {
		item.CallID = x.response.itemID("call")
	}
	index := x.index()
	x.emit("response.output_item.added", event{OutputIndex: index, Item: item})
	x.emit("response.function_call_arguments.delta", event{ItemID: item.ID, OutputIndex: index, Delta: &call.Arguments})
	x.emit("response.function_call_arguments.done", event{ItemID: item.ID, OutputIndex: index, Arguments: &call.Arguments})
	item.Status, item.Arguments = status, call.Arguments
	x.emit("response.output_item.done", event{OutputIndex: index, Item: item})
	x.response.Output = append(x.response.Output, item)
}

// close ends the item in progress.
func (x *exchange) close(whole bool) {
	switch x.open {
	case thought:
		x.closeReasoning()
	case words:
		x.closeMessage(whole)
	}
	x.open = nothing
}

func (x *exchange) closeMessage(whole bool) {
	text, index := x.text.String(), x.index()
	content := newOutputText(text, x.places)
	item := messageItem{ID: x.id, Type: "message", Status: "completed", Role: "assistant", Content: []outputText{content}}
	if !whole {
		item.Status = "incomplete"
	}
	x.emit("response.output_text.done", event{ItemID: x.id, OutputIndex: index, ContentIndex: &zero, Text: &text, Logprobs: probabilities(x.places)})
	x.emit("response.content_part.done", event{ItemID: x.id, OutputIndex: index, ContentIndex: &zero, Part: content})
	x.emit("response.output_item.done", event{OutputIndex: index, Item: item})
	x.response.Output = append(x.response.Output, item)
}

func (x *exchange) closeReasoning() {
	text, index := x.text.String(), x.index()
	item := reasoningItem{ID: x.id, Type: "reasoning", Summary: []textPart{}}
	if x.encrypted {
		item.Encrypted = seal(text)
	}
	if x.summarized() {
		done := textPart{"summary_text", text}
		item.Summary = append(item.Summary, done)
		x.emit("response.reasoning_summary_text.done", event{ItemID: x.id, OutputIndex: index, SummaryIndex: &zero, Text: &text})
		x.emit("response.reasoning_summary_part.done", event{ItemID: x.id, OutputIndex: index, SummaryIndex: &zero, Part: done})
	} else {
		done := textPart{"reasoning_text", text}
		item.Content = []textPart{done}
		x.emit("response.reasoning_text.done", event{ItemID: x.id, OutputIndex: index, ContentIndex: &zero, Text: &text})
		x.emit("response.content_part.done", event{ItemID: x.id, OutputIndex: index, ContentIndex: &zero, Part: done})
	}
	x.emit("response.output_item.done", event{OutputIndex: index, Item: item})
	x.response.Output = append(x.response.Output, item)
}

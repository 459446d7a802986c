package tessera

import (
	"encoding/json"
	"time"

	"tessera.dev/tessera/raw"
)

// EventKind says what an Event tells.
type EventKind int32

const (
	EventToken   EventKind = 0 // a token, and the text that became certain with it
	EventPending EventKind = 1 // nothing within the timeout, or nothing to wait for
	EventEnd     EventKind = 2 // a text is complete
	EventPrompt  EventKind = 3 // log probabilities of a part of the prompt's tokens
	EventLogits  EventKind = 4 // logits of the next token wait for Answer
)

// Event is what an engine says of one text of a request.
type Event struct {
	Kind    EventKind
	Request int64  // -1 with EventPending
	Index   int    // of the request's texts
	Token   int32  // with EventToken; -1 for text alone
	Text    string // with EventToken: whole characters, perhaps none yet
	Finish  Finish // with EventEnd
	Details string // JSON, which the header describes under tsr_engine_next; empty where there are none
}

// Failure is why a text failed; nil for an event that is not such an end.
func (e Event) Failure() error {
	if e.Kind != EventEnd || e.Finish != FinishFailed {
		return nil
	}
	var details struct {
		Error struct {
			Code    Code
			Message string
		}
	}
	if err := json.Unmarshal([]byte(e.Details), &details); err != nil {
		return &Error{Code: Internal, Message: err.Error()}
	}
	return &Error{Code: details.Error.Code, Message: details.Error.Message}
}

// takeEvent waits for the next event of C.
func takeEvent(engine uintptr, timeout time.Duration) (Event, error) {
	found := raw.NewTsr_event()
	defer raw.DeleteTsr_event(found)
	found.SetStruct_size(raw.Tsr_raw_event_size())
	if err := failure(raw.Tsr_engine_next(engine, timeout.Seconds(), found)); err != nil {
		return Event{}, err
	}
	event := Event{Kind: EventKind(found.GetKind()), Request: found.GetRequest(), Index: int(found.GetIndex()), Token: -1}
	switch event.Kind {
	case EventPending:
		return event, nil
	case EventToken:
		event.Token, event.Text = int32(found.GetToken()), found.GetText()
	case EventEnd:
		event.Finish = Finish(found.GetFinish())
	}
	if found.GetDetails_size() > 0 {
		event.Details = found.GetDetails()
	}
	return event, nil
}

package openai

import "tessera.dev/service/dialect/wire"

// EventStream is the content type of server-sent events.
const EventStream = "text/event-stream; charset=utf-8"

// Done is the last event of a stream; Ping is a comment, which clients skip.
const (
	Done = "data: [DONE]\n\n"
	Ping = ": ping\n\n"
)

// Event returns a server-sent event with the JSON of a value.
func Event(value any) []byte { return event(wire.JSON(value)) }

func event(data []byte) []byte {
	framed := make([]byte, 0, len(data)+8)
	framed = append(framed, "data: "...)
	framed = append(framed, data...)
	return append(framed, "\n\n"...)
}

// ContentType returns the content type of a reply.
func ContentType(streamed bool) string {
	if streamed {
		return EventStream
	}
	return "application/json"
}

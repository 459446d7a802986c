package messages

import (
	"encoding/json"
	"fmt"
	"strings"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/openai"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// exchange is a request and its message, which grows by events.
type exchange struct {
	*request
	tenant string
	id     string
	reply  message
	out    []byte // events that Begin, Piece or End gives
	open   string // type of the block in progress; "" for none
	text   strings.Builder
	calls  int
	ended  inference.Event // the one with Finish
}

func decode(call *dialect.Call) (dialect.Exchange, error) {
	asked, err := read(call, false)
	if err != nil {
		return nil, err
	}
	x := &exchange{request: asked, tenant: call.Tenant, id: call.ID}
	x.reply = message{ID: "msg_" + call.ID, Type: "message", Role: "assistant", Model: asked.model, Content: []any{}}
	return x, nil
}

func (x *exchange) Model() string { return x.model }

func (x *exchange) Requests(inference.Info) ([]inference.Request, error) {
	return []inference.Request{x.engine(x.tenant)}, nil
}

func (x *exchange) Streamed() bool      { return x.streamed }
func (x *exchange) ContentType() string { return openai.ContentType(x.streamed) }
func (x *exchange) Whole() []byte       { return wire.JSON(x.reply) }

func (x *exchange) Ping() []byte {
	if !x.streamed {
		return nil
	}
	return wire.Event("ping", plain{"ping"})
}

func (x *exchange) emit(name string, body any) {
	if x.streamed {
		x.out = append(x.out, wire.Event(name, body)...)
	}
}

func (x *exchange) take() []byte {
	out := x.out
	x.out = nil
	return out
}

func (x *exchange) Begin(_ inference.Info, used []inference.Usage) []byte {
	x.reply.Usage = newUsage(used)
	x.reply.Usage.Output, x.reply.Usage.Details = 0, &details{}
	x.emit("message_start", start{"message_start", x.reply})
	x.emit("ping", plain{"ping"})
	return x.take()
}

func (x *exchange) Piece(_ int, piece inference.Event) []byte {
	if piece.Reasoning != "" {
		x.turn("thinking")
		x.text.WriteString(piece.Reasoning)
		if !x.omitted {
			x.delta(thinkingDelta{"thinking_delta", piece.Reasoning})
		}
	}
	if piece.Text != "" {
		x.turn("text")
		x.text.WriteString(piece.Text)
		x.delta(textDelta{"text_delta", piece.Text})
	}
	for _, call := range piece.Calls {
		if !x.oneCall || x.calls == 0 {
			x.calls++
			x.call(call, openai.Arguments(call.Arguments))
		}
	}
	if cut := piece.CutCall; cut != nil && (!x.oneCall || x.calls == 0) {
		x.call(*cut, wholeMembers(cut.Arguments))
	}
	if piece.Finish != "" {
		x.ended = piece
	}
	return x.take()
}

func (x *exchange) delta(delta any) {
	x.emit("content_block_delta", blockDelta{"content_block_delta", len(x.reply.Content), delta})
}

// turn ends the block in progress where it is of another type, and begins one of this type.
func (x *exchange) turn(kind string) {
	if x.open == kind {
		return
	}
	x.close()
	x.open = kind
	x.text.Reset()
	switch kind {
	case "thinking":
		x.emit("content_block_start", blockStart{"content_block_start", len(x.reply.Content), thinkingBlock{Type: kind}})
	case "text":
		x.emit("content_block_start", blockStart{"content_block_start", len(x.reply.Content), textBlock{Type: kind}})
	}
}

// close ends the block in progress. The signature is of no use here, and clients want one.
func (x *exchange) close() {
	switch x.open {
	case "":
		return
	case "thinking":
		block := thinkingBlock{x.open, x.text.String(), fmt.Sprintf("tessera_%s%02d", x.id, len(x.reply.Content))}
		if x.omitted {
			block.Thinking = ""
		}
		x.delta(signatureDelta{"signature_delta", block.Signature})
		x.stop(block)
	case "text":
		x.stop(textBlock{Type: x.open, Text: x.text.String()})
	}
	x.open = ""
}

func (x *exchange) stop(block any) {
	x.emit("content_block_stop", blockStop{"content_block_stop", len(x.reply.Content)})
	x.reply.Content = append(x.reply.Content, block)
}

// call adds a block. The whole message has its input as an object, which for a call that was cut has the members that are complete.
func (x *exchange) call(call inference.ToolCall, input json.RawMessage) {
	x.turn("")
	block := toolBlock{Type: "tool_use", ID: call.ID, Name: call.Name, Input: json.RawMessage("{}"), Caller: plain{"direct"}}
	if block.ID == "" {
		block.ID = fmt.Sprintf("toolu_%s%02d", x.id, len(x.reply.Content))
	}
	x.emit("content_block_start", blockStart{"content_block_start", len(x.reply.Content), block})
	x.delta(inputDelta{"input_json_delta", call.Arguments})
	block.Input = input
	x.stop(block)
}

func (x *exchange) End(used []inference.Usage) []byte {
	x.close()
	x.reply.Usage = newUsage(used)
	reason := x.reason()
	x.reply.StopReason = &reason
	if reason == "stop_sequence" {
		x.reply.StopSequence = &x.ended.StopText
	}
	x.emit("message_delta", messageDelta{"message_delta", ending{nil, nil, x.reply.StopReason, x.reply.StopSequence}, deltaUsage(x.reply.Usage)})
	x.emit("message_stop", plain{"message_stop"})
	return x.take()
}

// reason says why the message ended. A text that ends before max_tokens has filled the context.
func (x *exchange) reason() string {
	switch {
	case x.ended.Finish == inference.Length && x.reply.Usage.Output < x.most:
		return "model_context_window_exceeded"
	case x.ended.Finish == inference.Length || x.ended.Finish == inference.Cancelled:
		return "max_tokens"
	case x.calls > 0:
		return "tool_use"
	case x.ended.StopText != "":
		return "stop_sequence"
	}
	return "end_turn"
}

func (x *exchange) Broken(failure *inference.Error) []byte {
	x.emit("error", newErrorBody(failure, dialect.RequestID(x.id)))
	return x.take()
}

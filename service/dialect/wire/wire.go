// Package wire writes the bytes of replies: JSON, server-sent events, lines of JSON.
package wire

import (
	"bytes"
	"encoding/json"
)

// JSON is a value in one line. Members are in the order of its struct; <, > and & stay as they are.
func JSON(value any) []byte {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		panic("wire: " + err.Error()) // replies hold finite numbers and sound raw JSON
	}
	return bytes.TrimRight(out.Bytes(), "\n")
}

// Line is JSON and the end of its line.
func Line(value any) []byte { return append(JSON(value), '\n') }

// Event is a server-sent event with a name.
func Event(name string, value any) []byte {
	return bytes.Join([][]byte{[]byte("event: " + name + "\ndata: "), JSON(value), []byte("\n\n")}, nil)
}

// Comment is what readers of server-sent events pass over.
func Comment(text string) []byte { return []byte(": " + text + "\n\n") }

// Compact is JSON text in one line. It must be sound.
func Compact(raw []byte) json.RawMessage {
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		panic("wire: " + err.Error())
	}
	return out.Bytes()
}

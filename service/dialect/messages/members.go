package messages

import (
	"bytes"
	"encoding/json"
	"strings"

	"tessera.dev/service/dialect/wire"
)

// wholeMembers returns the object whose JSON begins with this text, with the members that are complete.
func wholeMembers(text string) json.RawMessage {
	decoder := json.NewDecoder(strings.NewReader(text))
	made := bytes.NewBufferString("{")
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return json.RawMessage("{}")
	}
	for decoder.More() {
		key, err := decoder.Token()
		name, ok := key.(string)
		var value json.RawMessage
		if err != nil || !ok || decoder.Decode(&value) != nil {
			break
		}
		// A number at the end may go on.
		if decoder.InputOffset() == int64(len(text)) && strings.Contains("-0123456789", string(value[:1])) {
			break
		}
		if made.Len() > 1 {
			made.WriteByte(',')
		}
		made.Write(wire.JSON(name))
		made.WriteByte(':')
		made.Write(value)
	}
	return json.RawMessage(made.String() + "}")
}

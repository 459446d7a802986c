package openai

import (
	_ "embed" // the components
	"encoding/json"

	"tessera.dev/service/dialect"
)

//go:embed openapi.json
var components []byte

// Document returns a dialect's OpenAPI document with the components of this package merged in, to which it refers.
func Document(own []byte) json.RawMessage {
	whole, err := dialect.MergeDocuments("", "", components, own)
	if err != nil {
		panic(err) // both are files of the program
	}
	return whole
}

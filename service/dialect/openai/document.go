package openai

import (
	_ "embed" // the components
	"encoding/json"

	"tessera.dev/service/dialect"
)

//go:embed openapi.json
var components []byte

// Document is a dialect's OpenAPI document, which refers to the components that are described here.
func Document(own []byte) json.RawMessage {
	whole, err := dialect.MergeDocuments("", "", components, own)
	if err != nil {
		panic(err) // both are files of the program
	}
	return whole
}

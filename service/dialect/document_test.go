package dialect

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestDocumentsAreMerged(t *testing.T) {
	one := json.RawMessage(`{"paths":{"/a":{"get":{}}},"components":{"schemas":{"X":{"type":"string"}}}}`)
	two := json.RawMessage(`{"paths":{"/b":{}},"components":{"schemas":{"X": {"type": "string"},"Y":true}}}`)
	whole, err := MergeDocuments("T", "1", one, nil, two)
	wanted := `{"components":{"schemas":{"X":{"type":"string"},"Y":true}},"info":{"title":"T","version":"1"},"openapi":"3.1.0","paths":{"/a":{"get":{}},"/b":{}}}`
	if err != nil || string(whole) != wanted {
		t.Error(string(whole), err)
	}
	other := json.RawMessage(`{"components":{"schemas":{"X":{"type":"number"}}}}`)
	if _, err := MergeDocuments("T", "1", one, other); err == nil || !strings.Contains(err.Error(), `"X" is described in two ways`) {
		t.Error(err)
	}
	if _, err := MergeDocuments("T", "1", json.RawMessage(`{`)); err == nil {
		t.Error("half a document was merged")
	}
}

package fake

import (
	"encoding/json"
	"fmt"
	"testing"

	"tessera.dev/service/dialect"
)

// Refusals posts bodies to a path. Each is refused with 400, the code and the member as "CODE|MEMBER"; "" for one that is served.
func Refusals(t *testing.T, made dialect.Dialect, target string, bodies map[string]string) {
	t.Helper()
	for body, wanted := range bodies {
		status, reply := Post(made, target, body)
		var told struct {
			Error *struct{ Message, Type, Param, Code string }
		}
		if err := json.Unmarshal(reply, &told); err != nil && wanted != "" {
			t.Errorf("%.100s: %v in %s", body, err, reply)
			continue
		}
		found := ""
		if told.Error != nil {
			found = told.Error.Code + "|" + told.Error.Param
		}
		if found != wanted || wanted != "" && (status != 400 || told.Error.Message == "" || told.Error.Type != "invalid_request_error") {
			t.Errorf("%.100s:\n found %d %s\nwanted %s\n%.300s", body, status, found, wanted, reply)
		}
	}
}

// KnownMembers posts every member that the OpenAPI document has of a request with an object of a strange member: none may be
// unknown itself.
func KnownMembers(t *testing.T, made dialect.Dialect, target, schema, least string) {
	t.Helper()
	var document struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]json.RawMessage
			}
		}
	}
	if err := json.Unmarshal(made.Document, &document); err != nil {
		t.Fatal(err)
	}
	members := document.Components.Schemas[schema].Properties
	if len(members) == 0 {
		t.Fatalf("the document has no members of %s", schema)
	}
	for name := range members {
		body := map[string]json.RawMessage{}
		if err := json.Unmarshal([]byte(least), &body); err != nil {
			t.Fatal(err)
		}
		body[name] = json.RawMessage(`{"strange":[]}`)
		text, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		_, reply := Post(made, target, string(text))
		var told struct{ Error struct{ Param, Code string } }
		if err := json.Unmarshal(reply, &told); err == nil && told.Error.Code == "unknown_parameter" && told.Error.Param == name {
			t.Error(fmt.Sprint(name, " is in the document, and no member that is known"))
		}
	}
}

package fake

import (
	"encoding/json"
	"sort"
	"strings"
	"testing"

	"tessera.dev/service/dialect"
)

// Document checks that the dialect's OpenAPI has exactly its paths, and that every reference leads somewhere.
func Document(t *testing.T, made dialect.Dialect) {
	t.Helper()
	var document struct {
		Paths      map[string]map[string]json.RawMessage
		Components struct{ Schemas map[string]json.RawMessage }
	}
	if err := json.Unmarshal(made.Document, &document); err != nil {
		t.Fatal(err)
	}
	var wanted, found []string
	for _, endpoint := range made.Endpoints {
		wanted = append(wanted, endpoint.Method+" "+endpoint.Path)
	}
	for _, plain := range made.Plains {
		wanted = append(wanted, plain.Method+" "+plain.Path)
	}
	for path, methods := range document.Paths {
		for method := range methods {
			found = append(found, strings.ToUpper(method)+" "+path)
		}
	}
	sort.Strings(wanted)
	sort.Strings(found)
	if strings.Join(found, "\n") != strings.Join(wanted, "\n") {
		t.Errorf("the document has\n%s\nwanted\n%s", strings.Join(found, "\n"), strings.Join(wanted, "\n"))
	}
	const reference = `"$ref": "#/components/schemas/`
	for _, part := range strings.Split(string(made.Document), reference)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		if document.Components.Schemas[name] == nil {
			t.Errorf("no schema %s", name)
		}
	}
}

package dialect

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
)

// document has the members of a dialect's OpenAPI document that are merged.
type document struct {
	Paths      map[string]json.RawMessage            `json:"paths"`
	Components map[string]map[string]json.RawMessage `json:"components"`
}

// MergeDocuments returns one OpenAPI document with the paths and components of several. Two different parts of one name are an error.
func MergeDocuments(title, version string, documents ...json.RawMessage) (json.RawMessage, error) {
	whole := document{map[string]json.RawMessage{}, map[string]map[string]json.RawMessage{}}
	for _, text := range documents {
		if text == nil {
			continue
		}
		var part document
		if err := json.Unmarshal(text, &part); err != nil {
			return nil, fmt.Errorf("OpenAPI document: %w", err)
		}
		if err := mergeParts(whole.Paths, part.Paths); err != nil {
			return nil, err
		}
		for kind, parts := range part.Components {
			if whole.Components[kind] == nil {
				whole.Components[kind] = map[string]json.RawMessage{}
			}
			if err := mergeParts(whole.Components[kind], parts); err != nil {
				return nil, err
			}
		}
	}
	return json.Marshal(map[string]any{
		"openapi": "3.1.0", "info": map[string]string{"title": title, "version": version}, "paths": whole.Paths, "components": whole.Components,
	})
}

func mergeParts(into, parts map[string]json.RawMessage) error {
	names := make([]string, 0, len(parts))
	for name := range parts {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		if there, twice := into[name]; twice && !same(there, parts[name]) {
			return fmt.Errorf("OpenAPI document: %q is described in two ways", name)
		}
		into[name] = parts[name]
	}
	return nil
}

func same(a, b json.RawMessage) bool {
	var left, right bytes.Buffer
	return json.Compact(&left, a) == nil && json.Compact(&right, b) == nil && bytes.Equal(left.Bytes(), right.Bytes())
}

package listing

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"tessera.dev/service/dialect"
	"tessera.dev/service/dialect/wire"
	"tessera.dev/service/inference"
)

// anthropicModel is a model in Anthropic's list, which its clients get: they send the header anthropic-version.
type anthropicModel struct {
	Type         string  `json:"type"`
	ID           string  `json:"id"`
	Name         string  `json:"display_name"`
	Created      string  `json:"created_at"`
	Lifecycle    string  `json:"lifecycle"`
	Deprecated   *string `json:"deprecated_at"`
	Retires      *string `json:"retires_at"`
	Line         *string `json:"line"`
	Capabilities *string `json:"capabilities"` // null: an object of Anthropic's own features
	Input        *int64  `json:"max_input_tokens"`
	Output       *int64  `json:"max_tokens"`
}

type anthropicModels struct {
	Data  []anthropicModel `json:"data"`
	First *string          `json:"first_id"`
	Last  *string          `json:"last_id"`
	More  bool             `json:"has_more"`
}

// Entries of a page, as Anthropic has them.
const (
	usualPage = 20
	mostPage  = 1000
)

func isAnthropic(call *dialect.Call) bool { return call.Header.Get("Anthropic-Version") != "" }

func newAnthropicModel(info inference.Info) anthropicModel {
	made := anthropicModel{Type: "model", ID: info.Name, Name: info.Name, Created: time.Unix(info.Created, 0).UTC().Format(time.RFC3339), Lifecycle: "active"}
	if info.Context > 0 {
		made.Input, made.Output = &info.Context, &info.Context
	}
	return made
}

// listAnthropic returns the page that limit, after_id and before_id ask for.
func listAnthropic(call *dialect.Call, all []inference.Info) (any, error) {
	limit, begin, end := usualPage, 0, len(all)
	if given := queried(call, "limit"); given != "" {
		number, err := strconv.Atoi(given)
		if err != nil || number < 1 || number > mostPage {
			return nil, invalid("limit", given, fmt.Sprintf("a number from 1 to %d", mostPage))
		}
		limit = number
	}
	if after := queried(call, "after_id"); after != "" {
		place := placeOf(after, all)
		if place < 0 {
			return nil, invalid("after_id", after, "the id of a model")
		}
		begin = place + 1
	}
	before := queried(call, "before_id")
	if before != "" {
		if end = placeOf(before, all); end < 0 {
			return nil, invalid("before_id", before, "the id of a model")
		}
	}
	if end < begin {
		end = begin
	}
	more := end-begin > limit
	switch {
	case more && before != "": // the page next to that model
		begin = end - limit
	case more:
		end = begin + limit
	}
	made := anthropicModels{Data: []anthropicModel{}, More: more}
	for _, info := range all[begin:end] {
		made.Data = append(made.Data, newAnthropicModel(info))
	}
	if count := len(made.Data); count > 0 {
		made.First, made.Last = &made.Data[0].ID, &made.Data[count-1].ID
	}
	return json.RawMessage(wire.JSON(made)), nil
}

func queried(call *dialect.Call, name string) string {
	if values := call.Query[name]; len(values) > 0 {
		return values[0]
	}
	return ""
}

func placeOf(name string, all []inference.Info) int {
	for i, info := range all {
		if info.Name == name {
			return i
		}
	}
	return -1
}

func invalid(param, found, wanted string) error {
	return &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: param, Message: fmt.Sprintf("'%s' is %q; %s is wanted", param, found, wanted)}
}

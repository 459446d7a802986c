package openai_test

import (
	"net/url"
	"testing"

	"tessera.dev/service/dialect/openai"
)

func TestQueries(t *testing.T) {
	for text, wanted := range map[string]string{
		"":                    "",
		"limit=5&order=desc":  "",
		"limit=":              "'limit' is \"\"; an integer from 1 to 100 is wanted",
		"limit=x":             "'limit' is \"x\"; an integer from 1 to 100 is wanted",
		"limit=0":             "'limit' is 0; at least 1 is wanted",
		"limit=101":           "'limit' is 101; at most 100 is wanted",
		"limit=1&limit=2":     "'limit' is given 2 times; once is wanted",
		"order=":              "'order' is \"\"; one of asc, desc is wanted",
		"order=up":            "'order' is \"up\"; one of asc, desc is wanted",
		"other=1":             "'other' is no member of the query that is known here",
		"api-version=2024-01": "",
	} {
		values, err := url.ParseQuery(text)
		if err != nil {
			t.Fatal(err)
		}
		query := openai.NewQuery(values)
		query.Integer("limit", 20, 1, 100)
		query.Choice("order", "asc", "desc")
		found := ""
		if err := query.Done(); err != nil {
			found = err.Error()
		}
		if found != wanted {
			t.Errorf("%q: found %q, wanted %q", text, found, wanted)
		}
	}
}

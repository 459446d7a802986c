package openai

import (
	"sort"
	"strconv"
	"strings"

	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

// Query reads URL query parameters as strictly as body fields are read; the first error is kept and returned by Done.
type Query struct {
	values map[string][]string
	read   map[string]bool
	err    *inference.Error
}

// NewQuery returns a Query over the parsed parameters `values`. api-version, which Azure's clients send, changes nothing.
func NewQuery(values map[string][]string) *Query {
	return &Query{values: values, read: map[string]bool{"api-version": true}}
}

// Fail records an error for the parameter `name`, unless one is recorded already.
func (q *Query) Fail(name, code, format string, arguments ...any) {
	if q.err == nil {
		q.err = fields.Invalid(name, code, format, arguments...)
	}
}

// Text returns the value of a parameter, "" if it is absent. A parameter that is given twice is an error.
func (q *Query) Text(name string) string {
	q.read[name] = true
	given := q.values[name]
	if len(given) > 1 {
		q.Fail(name, fields.InvalidValue, "is given %d times; once is wanted", len(given))
	}
	if len(given) == 0 {
		return ""
	}
	return given[0]
}

func (q *Query) has(name string) bool { return len(q.values[name]) > 0 }

// Integer returns a parameter as an integer in [least, most], `otherwise` if it is absent. One outside the range is an error.
func (q *Query) Integer(name string, otherwise, least, most int) int {
	text := q.Text(name)
	if !q.has(name) {
		return otherwise
	}
	value, err := strconv.Atoi(text)
	switch {
	case err != nil:
		q.Fail(name, fields.InvalidType, "is %q; an integer from %d to %d is wanted", text, least, most)
	case value < least:
		q.Fail(name, fields.BelowMinimum, "is %d; at least %d is wanted", value, least)
	case value > most:
		q.Fail(name, fields.AboveMaximum, "is %d; at most %d is wanted", value, most)
	}
	return value
}

// Choice returns a parameter that must be one of `words`, the first of them if it is absent.
func (q *Query) Choice(name string, words ...string) string {
	text := q.Text(name)
	for _, word := range words {
		if text == word {
			return word
		}
	}
	if q.has(name) {
		q.Fail(name, fields.InvalidValue, "is %q; one of %s is wanted", text, strings.Join(words, ", "))
	}
	return words[0]
}

// Map returns the values of the parameters NAME[KEY]=VALUE by KEY.
func (q *Query) Map(name string) map[string]string {
	found := map[string]string{}
	for each := range q.values {
		if strings.HasPrefix(each, name+"[") && strings.HasSuffix(each, "]") {
			found[each[len(name)+1:len(each)-1]] = q.Text(each)
		}
	}
	return found
}

// Done records an error if there are parameters that were not read, and returns the first error.
func (q *Query) Done() error {
	var rest []string
	for name := range q.values {
		if !q.read[name] {
			rest = append(rest, name)
		}
	}
	sort.Strings(rest)
	for _, name := range rest {
		q.Fail(name, fields.Unknown, "is no member of the query that is known here")
	}
	if q.err == nil {
		return nil
	}
	return q.err
}

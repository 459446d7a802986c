package openai

import (
	"tessera.dev/service/dialect/fields"
	"tessera.dev/service/inference"
)

// Prompts reads a text, a list of texts, a list of token ids, or a list of such lists: at most mostTexts texts.
func Prompts(body *fields.Object, member string, mostTexts int) []inference.Text {
	value, ok := body.Value(member)
	if !ok {
		body.Fail(member, fields.Missing, "is missing; a text, a list of texts or token ids is wanted")
		return nil
	}
	switch value.Kind() {
	case fields.Text:
		return []inference.Text{{Words: value.Text()}}
	case fields.List:
		return promptList(value, mostTexts)
	}
	value.Fail(fields.InvalidType, "is %s; a text, a list of texts or token ids is wanted", value.Kind())
	return nil
}

// mostIDs bounds a list of token ids, before the context does.
const mostIDs = 1 << 24

// promptList reads a list whose elements all have the type of the first.
func promptList(value fields.Value, mostTexts int) (texts []inference.Text) {
	first, ok := value.First()
	if !ok {
		value.List(1, mostTexts) // says that it is empty
		return nil
	}
	switch first.Kind() {
	case fields.Number:
		return []inference.Text{{Tokens: value.Tokens(1, mostIDs)}}
	case fields.Text:
		for _, each := range value.Texts(1, mostTexts) {
			texts = append(texts, inference.Text{Words: each})
		}
	case fields.List:
		for _, each := range value.List(1, mostTexts) {
			texts = append(texts, inference.Text{Tokens: each.Tokens(1, mostIDs)})
		}
	default:
		first.Fail(fields.InvalidType, "is %s; a text, a token id or a list of ids is wanted", first.Kind())
	}
	return texts
}

// Package fields decodes the JSON of requests strictly: types, ranges, unknown and repeated members, depth. Each error is an
// *inference.Error of kind Invalid that names the member by its path, as "messages[2].role", with the codes of OpenAI's API
// ("invalid_type", "unknown_parameter", ...).
//
// Errors are sticky: the first one stays with the body, later reads return zero values, and the end asks once.
//
//	body, err := fields.Body(call.Body)                    // JSON that is sound, and an object
//	if err != nil {
//		return nil, err
//	}
//	model := body.NeedText("model")                        // absent or null: missing_required_parameter
//	if value, ok := body.Number("temperature", 0, 2); ok { // ok: present, not null, a number within the range
//		options["temperature"] = value
//	}
//	count, ok := body.Integer("n", 1, 128)                 // 3, 3.0 and 3e0 are integers; 3.5 is not
//	effort, ok := body.Choice("effort", "low", "high")
//	for _, message := range body.NeedList("messages", 1, 100000) {
//		item := message.Object()
//		role := item.NeedText("role")
//		if content, ok := item.Value("content"); ok && content.Kind() == fields.List {
//			...
//		}
//		if role == "critic" {
//			item.Fail("role", fields.InvalidValue, "is %q; system, user or assistant is wanted", role)
//		}
//		item.Done()                                        // refuses members that nothing asked for
//	}
//	body.Pass("user", "metadata")                          // harmless ones: any value
//	body.Refuse("audio", "answers are texts")              // named ones that are not served: unsupported_parameter
//	body.Only("modalities", `["text"]`)                    // one that is served only with these values
//	if err := body.Done(); err != nil {
//		return nil, err
//	}
//
// Null counts as absent everywhere. Names are compared exactly. Half of a surrogate pair in a text is U+FFFD.
package fields

import (
	"fmt"

	"tessera.dev/service/inference"
)

// Codes of errors.
const (
	Malformed    = "invalid_json"
	InvalidType  = "invalid_type"
	InvalidValue = "invalid_value"
	AboveMaximum = "integer_above_max_value"
	BelowMinimum = "integer_below_min_value"
	NumberAbove  = "decimal_above_max_value"
	NumberBelow  = "decimal_below_min_value"
	TooLong      = "array_above_max_length"
	TooShort     = "array_below_min_length"
	Empty        = "empty_string"
	Unknown      = "unknown_parameter"
	Missing      = "missing_required_parameter"
	NotServed    = "unsupported_parameter"
	ValueRefused = "unsupported_value"
)

// MaximumDepth is that of arrays and objects within each other.
const MaximumDepth = 64

// MaximumMembers is the count of members that an object may have.
const MaximumMembers = 1 << 16

// fault is the first error of a body.
type fault struct{ err *inference.Error }

// Invalid is an error of a member, whose path starts the message.
func Invalid(param, code, format string, arguments ...any) *inference.Error {
	message := fmt.Sprintf(format, arguments...)
	if param != "" {
		message = "'" + param + "' " + message
	}
	return &inference.Error{Kind: inference.Invalid, Code: code, Param: param, Message: message}
}

// Parse checks a text of JSON as a whole: syntax, UTF-8, depth, repeated members, nothing behind it.
func Parse(data []byte) (Value, error) {
	first, err := check(data)
	if err != nil {
		return Value{}, err
	}
	return Value{raw: first, index: -1, fault: &fault{}}, nil
}

// Body is Parse of an object.
func Body(data []byte) (*Object, error) {
	value, err := Parse(data)
	if err != nil {
		return nil, err
	}
	if value.Kind() != Members {
		return nil, &inference.Error{Kind: inference.Invalid, Code: InvalidType,
			Message: fmt.Sprintf("the body is %s; a JSON object is wanted", value.Kind())}
	}
	return value.Object(), nil
}

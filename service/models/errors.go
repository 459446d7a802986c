package models

import (
	"context"
	"errors"
	"sort"
	"strings"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// serviceError turns an error of the library into one for the client; it returns the errors of contexts as they are.
func serviceError(err error) error {
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	var known *inference.Error
	if errors.As(err, &known) {
		return known
	}
	var failed *tessera.Error
	if !errors.As(err, &failed) {
		return &inference.Error{Kind: inference.Internal, Message: err.Error()}
	}
	made := &inference.Error{Kind: inference.Internal, Code: failed.Code.String(), Message: failed.Message}
	switch failed.Code {
	case tessera.InvalidArgument, tessera.FailedPrecondition:
		made.Kind, made.Code = inference.Invalid, ""
		if isContextMessage(failed.Message) {
			made.Code = "context_length_exceeded"
		}
	case tessera.NotFound:
		made.Kind, made.Code = inference.Invalid, ""
	case tessera.Unsupported:
		made.Kind = inference.Unsupported
	case tessera.OutOfMemory, tessera.Busy:
		made.Kind = inference.Overloaded
	}
	return made
}

// adapterError is serviceError, except that corrupt files of an adapter are an error of the request that names them.
func adapterError(err error) error {
	var failed *tessera.Error
	if errors.As(err, &failed) && failed.Code == tessera.Corrupt {
		return invalid("model", failed.Message)
	}
	return serviceError(err)
}

// isContextMessage says whether the engine refused a prompt for its length.
func isContextMessage(message string) bool {
	return strings.Contains(message, "context") && strings.Contains(message, "tokens")
}

func invalid(param, message string) *inference.Error {
	return &inference.Error{Kind: inference.Invalid, Param: param, Message: message}
}

func sortedKeys[V any](from map[string]V) []string {
	keys := make([]string, 0, len(from))
	for key := range from {
		keys = append(keys, key)
	}
	sort.Strings(keys)
	return keys
}

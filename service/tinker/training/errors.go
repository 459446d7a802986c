package training

import (
	"errors"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// said turns an error of the library into one for the client's eyes.
func said(err error, param string) error {
	var known *tessera.Error
	if !errors.As(err, &known) {
		return err
	}
	switch known.Code {
	case tessera.InvalidArgument, tessera.Unsupported, tessera.FailedPrecondition, tessera.NotFinite, tessera.NotFound:
		return &inference.Error{Kind: inference.Invalid, Code: known.Code.String(), Param: param, Message: known.Message}
	case tessera.OutOfMemory:
		return &inference.Error{Kind: inference.Invalid, Code: "out_of_memory", Param: param, Message: known.Message}
	}
	return &inference.Error{Kind: inference.Internal, Code: known.Code.String(), Message: known.Message}
}

// takesValues says whether an error of a pass takes the values of its trainer.
func takesValues(err error) bool {
	for _, code := range []tessera.Code{tessera.Cancelled, tessera.ValuesLost, tessera.Aborted, tessera.Timeout} {
		if errors.Is(err, code) {
			return true
		}
	}
	return false
}

func valuesLost(err error) error {
	message := err.Error()
	var known *tessera.Error
	if errors.As(err, &known) {
		message = known.Message
	}
	return &inference.Error{Kind: inference.Internal, Code: "values_lost",
		Message: "the training's values are lost, go on from its last checkpoint: " + message}
}

// dropsGradients says whether an error of a step drops the gradients that it was to be made from.
func dropsGradients(err error) bool {
	return errors.Is(err, tessera.NotFinite) || errors.Is(err, tessera.FailedPrecondition)
}

// fitsNot says whether an error is that of a model or of adapters which side by side are not for.
func fitsNot(err error) bool {
	return errors.Is(err, tessera.InvalidArgument) || errors.Is(err, tessera.Unsupported)
}

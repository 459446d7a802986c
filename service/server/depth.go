package server

import (
	"fmt"

	"tessera.dev/service/inference"
)

// checkDepth refuses JSON that is nested too deeply, before anything recursive reads it.
func checkDepth(body []byte, most int) error {
	depth, quoted := 0, false
	for i := 0; i < len(body); i++ {
		switch c := body[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > most {
				return &inference.Error{Kind: inference.Invalid, Code: "too_deep",
					Message: fmt.Sprintf("the body is nested more than %d deep at byte %d", most, i)}
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return nil
}

func sizeText(bytes int64) string {
	if bytes >= 1<<20 && bytes%(1<<20) == 0 {
		return fmt.Sprintf("%d MiB", bytes>>20)
	}
	if bytes >= 1<<10 && bytes%(1<<10) == 0 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d bytes", bytes)
}

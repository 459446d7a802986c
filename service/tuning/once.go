package tuning

import (
	"fmt"
	"net/http"

	"tessera.dev/service/inference"
)

// mostKeyLetters of an idempotency key.
const mostKeyLetters = 255

// NewOnce reads the key of a request that may be repeated, in the spelling of most and in that of Tinker's SDK.
func NewOnce(header http.Header, tenant, route string) (Once, error) {
	for _, name := range []string{"Idempotency-Key", "X-Idempotency-Key"} {
		key := header.Get(name)
		if len(key) > mostKeyLetters {
			return Once{}, &inference.Error{Kind: inference.Invalid, Code: "invalid_value", Param: name,
				Message: fmt.Sprintf("'%s' has %d letters; at most %d are wanted", name, len(key), mostKeyLetters)}
		}
		if key != "" {
			return Once{Tenant: tenant, Route: route, Key: key}, nil
		}
	}
	return Once{}, nil
}

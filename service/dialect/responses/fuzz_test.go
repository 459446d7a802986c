package responses

import (
	"testing"

	"tessera.dev/service/dialect/fake"
)

func FuzzRequests(f *testing.F) { fake.Fuzz(f, New()) }

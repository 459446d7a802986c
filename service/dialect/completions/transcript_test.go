package completions_test

import (
	"testing"

	"tessera.dev/service/dialect/completions"
	"tessera.dev/service/dialect/fake"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, completions.New(), fake.Echo) }

func FuzzRequests(f *testing.F) { fake.Fuzz(f, completions.New()) }

package texts_test

import (
	"testing"

	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/dialect/texts"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, texts.New(), fake.Echo) }

func FuzzRequests(f *testing.F) { fake.Fuzz(f, texts.New()) }

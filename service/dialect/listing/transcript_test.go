package listing_test

import (
	"testing"

	"tessera.dev/service/dialect/fake"
	"tessera.dev/service/dialect/listing"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, listing.New(), fake.Echo) }

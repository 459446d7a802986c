package chat_test

import (
	"testing"

	"tessera.dev/service/dialect/chat"
	"tessera.dev/service/dialect/fake"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, chat.New(chat.Settings{}), fake.Echo) }

func FuzzRequests(f *testing.F) { fake.Fuzz(f, chat.New(chat.Settings{})) }

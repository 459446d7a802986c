package openai

import (
	"runtime"
	"strings"
	"testing"
)

// The cost of joining is in proportion to the texts.
func TestLongConversation(t *testing.T) {
	messages := []Message{{Role: "system", Content: strings.Repeat("a", 1<<20)}}
	for i := 0; i < 2000; i++ {
		messages = append(messages, Message{Role: "developer", Content: "b"})
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	text := Conversation(messages, "")
	runtime.ReadMemStats(&after)
	if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
		t.Errorf("found %d MiB allocated for a conversation of 1 MiB, wanted 16", used>>20)
	}
	if !strings.HasSuffix(string(text), `a\n\nb`+strings.Repeat(`\n\nb`, 1999)+`"}]`) {
		t.Errorf("found %.100s", text[len(text)-100:])
	}
}

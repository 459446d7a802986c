package conversation

import (
	"runtime"
	"strings"
	"testing"
)

// The cost of joining is in proportion to the texts.
func TestLongTexts(t *testing.T) {
	for name, say := range map[string]func(*Talk, string){"system": (*Talk).System, "user": (*Talk).User, "answer": (*Talk).Answer, "reasoning": (*Talk).Reasoning} {
		var talk Talk
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		say(&talk, strings.Repeat("a", 1<<20))
		for i := 0; i < 2000; i++ {
			say(&talk, "b")
		}
		text := string(talk.JSON())
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 16<<20 {
			t.Errorf("%s: found %d MiB allocated for a text of 1 MiB, wanted 16", name, used>>20)
		}
		if !strings.Contains(text, `a\n\nb`+strings.Repeat(`\n\nb`, 1999)+`"`) {
			t.Errorf("%s: found %.100s", name, text[len(text)-100:])
		}
	}
}

// Texts that are empty leave no empty line.
func TestEmptyTexts(t *testing.T) {
	var talk Talk
	for _, text := range []string{"", "a", "", "b", ""} {
		talk.User(text)
	}
	talk.Reasoning("r")
	talk.Answer("c")
	talk.Call(NewCall("1", "f", "{}"))
	talk.Answer("d")
	const wanted = `[{"role":"user","content":"a\n\nb"},{"role":"assistant","content":"c","reasoning_content":"r","tool_calls":[{"id":"1","type":"function","function":{"name":"f","arguments":{}}}]},{"role":"assistant","content":"d"}]`
	if found := string(talk.JSON()); found != wanted {
		t.Errorf("found %s\nwanted %s", found, wanted)
	}
}

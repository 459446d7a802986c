package ollama

import (
	"encoding/json"
	"testing"

	"tessera.dev/service/dialect/fake"
)

func TestTranscripts(t *testing.T) { fake.Transcripts(t, New(), fake.Scripted) }

func TestDocument(t *testing.T) { fake.Document(t, New()) }

func TestRequestsThatAreRefused(t *testing.T) {
	const user = `"messages":[{"role":"user","content":"x"}]`
	for _, each := range []struct{ path, body, wanted string }{
		{"chat", ``, "the body is empty; a JSON object is wanted"},
		{"chat", `{}`, "'model' is missing; a text is wanted"},
		{"chat", `{"model":""}`, "'model' is empty"},
		{"chat", `{"model":"tiny","messages":{}}`, "'messages' is an object; a list is wanted"},
		{"chat", `{"model":"tiny","messages":[{"content":"x"}]}`, "'messages[0].role' is missing; a text is wanted"},
		{"chat", `{"model":"tiny","messages":[{"role":"user","content":"x","images":["aGk="]}]}`, `'messages[0].images' is ["aGk="]; supported: []`},
		{"chat", `{"model":"tiny",` + user + `,"tool_choice":"any"}`, "'tool_choice' is no member that is known here"},
		{"chat", `{"model":"tiny",` + user + `,"format":"yaml"}`, `'format' is "yaml"; "json" or a JSON schema is wanted`},
		{"chat", `{"model":"tiny",` + user + `,"format":7}`, `'format' is a number; "json" or a JSON schema is wanted`},
		{"chat", `{"model":"tiny",` + user + `,"think":"much"}`, `'think' is "much"; one of low, medium, high, max is wanted`},
		{"chat", `{"model":"tiny",` + user + `,"keep_alive":"long"}`, "'keep_alive' is no duration; a number of seconds, or a text as \"5m\" is wanted"},
		{"chat", `{"model":"tiny",` + user + `,"options":{"mirostat":2}}`, "'options.mirostat' is 2; supported: 0"},
		{"chat", `{"model":"tiny",` + user + `,"options":{"temprature":1}}`, "'options.temprature' is no member that is known here"},
		{"chat", `{"model":"tiny",` + user + `,"options":{"num_predict":1e300}}`, "'options.num_predict' is 1e300; at most 2147483647 is wanted"},
		{"chat", `{"model":"tiny",` + user + `,"options":{"top_k":0.5}}`, "'options.top_k' is 0.5; an integer is wanted"},
		{"chat", `{"model":"tiny",` + user + `,"options":{"stop":[""]}}`, "'options.stop' has an empty text"},
		{"generate", `{"model":"tiny","prompt":"x","suffix":"y"}`, `'suffix' is "y"; supported: ""`},
		{"generate", `{"model":"tiny","prompt":"x","context":[1]}`, `'context' is [1]; supported: []`},
		{"generate", `{"model":"tiny","prompt":"x","template":"y"}`, `'template' is "y"; supported: ""`},
		{"generate", `{"model":"tiny","prompt":"x","system":"y","raw":true}`, "'system' is given, and with 'raw' nothing is put around the prompt"},
		{"embed", `{"model":"base","input":7}`, "'input' is a number; a list is wanted"},
		{"embed", `{"model":"base","input":["x"],"dimensions":2}`, "'dimensions' is not supported: vectors are whole"},
	} {
		status, reply := fake.Ask(New(), fake.Scripted(), "POST", "/api/"+each.path, []byte(each.body))
		var found errorBody
		if err := json.Unmarshal(reply, &found); err != nil || status != 400 || found.Error != each.wanted {
			t.Errorf("%.120s: %d %s; wanted %s", each.body, status, reply, each.wanted)
		}
	}
}

func TestParameterSizes(t *testing.T) {
	for count, wanted := range map[int64]string{0: "0", 999: "999", 1500: "1.50K", 134515008: "134.52M", 8030261248: "8.0B", 405e9: "405.0B"} {
		if found := parameterSize(count); found != wanted {
			t.Errorf("%d: %s", count, found)
		}
	}
}

package models

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/service/inference"
	"tessera.dev/tessera"
)

// template writes roles and contents, with reasoning and calls of tools in the marks of Qwen and Hermes.
const template = `{% if tools %}{% for t in tools %}{{ t | tojson }}
{% endfor %}For each function call return <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call>
{% endif %}{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% for c in m.tool_calls %}<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}
{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}`

// writeModel writes a model of random weights over bytes.
func writeModel(t *testing.T, folder, name string) string {
	t.Helper()
	model, err := tessera.NewModel("llama:L=2,C=32,H=4,KV=2,F=64,V=256,T=256", tessera.Options{"seed": 1})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	tokenizer, err := tessera.NewByteTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	defer tokenizer.Close()
	path := filepath.Join(folder, name+".tsr")
	for _, err := range []error{model.SetTokenizer(tokenizer), model.SetMetadata("chat_template", template), model.Save(path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func open(t *testing.T, config Config) *Registry {
	t.Helper()
	if config.Engine == nil {
		config.Engine = tessera.Options{}
	}
	config.Engine["devices"], config.Engine["context"], config.Engine["sequences"] = "cpu:1", 128, 4
	config.Threads = 1 // tests share the cores with others, for which threads that wait for each other pay
	registry, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(registry.Close)
	return registry
}

func use(t *testing.T, registry *Registry, name string) inference.Model {
	t.Helper()
	model, err := registry.Open(context.Background(), name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(model.Release)
	return model
}

// all are the events of a request.
func all(t *testing.T, model inference.Model, request inference.Request) (events []inference.Event, used inference.Usage) {
	t.Helper()
	stream, err := model.Generate(context.Background(), request)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for {
		event, err := stream.Next(context.Background())
		if err == io.EOF {
			return events, stream.Usage()
		}
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, event)
	}
}

func textOf(events []inference.Event) (text string) {
	for _, event := range events {
		text += event.Text
	}
	return text
}

func kindOf(err error) inference.Kind {
	var failure *inference.Error
	if !errors.As(err, &failure) {
		return 0
	}
	return failure.Kind
}

func TestCatalog(t *testing.T) {
	folder := t.TempDir()
	for _, name := range []string{"a.gguf", "b.tsr", "c.txt", ".hidden.gguf", "big-00001-of-00002.gguf", "big-00002-of-00002.gguf", "hf/config.json", "none/x"} {
		_ = os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o755)
		if err := os.WriteFile(filepath.Join(folder, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, order, err := findModels([]string{folder}, map[string]string{"other": "a"})
	if err != nil || strings.Join(order, " ") != "a b big hf other" {
		t.Errorf("found %v, %v", order, err)
	}
	for _, wrong := range []struct {
		paths   []string
		aliases map[string]string
		wanted  string
	}{
		{[]string{filepath.Join(folder, "nothing")}, nil, "found nothing there"},
		{[]string{filepath.Join(folder, "c.txt")}, nil, "another kind"},
		{[]string{filepath.Join(folder, "none")}, nil, "without models"},
		{[]string{folder}, map[string]string{"a": filepath.Join(folder, "b.tsr")}, "two models have the name"},
		{[]string{folder}, map[string]string{"x": "y"}, "found no model"},
	} {
		if _, _, err := findModels(wrong.paths, wrong.aliases); err == nil || !strings.Contains(err.Error(), wrong.wanted) {
			t.Errorf("%v %v: found %v, wanted %q", wrong.paths, wrong.aliases, err, wrong.wanted)
		}
	}
}

func TestTexts(t *testing.T) {
	model := use(t, open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}}), "m")
	info := model.Info()
	if strings.Join(info.Does, " ") != "generate chat embed" || info.Context != 128 || info.Type != "f32" {
		t.Errorf("found %+v", info)
	}
	options := inference.Options{"temperature": 0.0, "max_tokens": 12, "ignore_eos": 1}
	events, used := all(t, model, inference.Request{Prompt: inference.Text{Words: "hello"}, Options: options})
	last := events[len(events)-1]
	if last.Finish != inference.Length || used.Prompt < 5 || used.Generated != 12 {
		t.Errorf("found %+v and %+v", last, used)
	}
	again, cached := all(t, model, inference.Request{Prompt: inference.Text{Words: "hello"}, Options: options})
	if textOf(again) != textOf(events) || cached.Cached == 0 {
		t.Errorf("found %q, wanted %q; cached %d", textOf(again), textOf(events), cached.Cached)
	}
	events, _ = all(t, model, inference.Request{Prompt: inference.Text{Tokens: []int32{104, 105}}, Options: inference.Options{
		"temperature": 0.0, "max_tokens": 3, "logprobs": 2, "prompt_logprobs": 1, "n": 2, "ignore_eos": 1}})
	prompt, tokens, ends := 0, 0, 0
	for _, event := range events {
		for _, one := range event.Prompt {
			if first := prompt == 0; math.IsNaN(one.Probability) != first {
				t.Errorf("token %d of the prompt has %v", prompt, one.Probability)
			}
			prompt++
		}
		for _, one := range event.Probabilities {
			if len(one.Likeliest) != 2 || one.Probability > 0 || len(one.Bytes) != 1 {
				t.Errorf("found %+v", one)
			}
			tokens++
		}
		if event.Finish != "" {
			ends++
		}
	}
	if prompt != 2 || tokens != 6 || ends != 2 {
		t.Errorf("found %d tokens of the prompt, %d of texts, %d ends", prompt, tokens, ends)
	}
}

func TestStopTexts(t *testing.T) {
	model := use(t, open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}}), "m")
	free := inference.Request{Prompt: inference.Text{Words: "hi"}, Options: inference.Options{"max_tokens": 40, "temperature": 0.0, "ignore_eos": 1}}
	events, _ := all(t, model, free)
	var bytes []byte
	for _, event := range events {
		for _, token := range event.Tokens {
			bytes = append(bytes, model.Piece(token)...)
		}
	}
	stop := ""
	for i := 8; i+1 < len(bytes); i++ {
		if bytes[i] > ' ' && bytes[i] < 127 {
			stop = string(bytes[i : i+1])
			break
		}
	}
	if stop == "" {
		t.Skip("no letter in the text")
	}
	given, _ := json.Marshal([]string{"never in it", stop})
	free.Options["stop"] = string(given)
	events, _ = all(t, model, free)
	if last := events[len(events)-1]; last.Finish != inference.Stop || last.StopText != stop {
		t.Errorf("found %+v, wanted the stop text %q", last, stop)
	}
}

func TestToolCalls(t *testing.T) {
	model := use(t, open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}}), "m")
	tools := `[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{"x":{"type":"integer"}}}}}]`
	request := inference.Request{Messages: json.RawMessage(`[{"role":"user","content":"hi"}]`), ToolChoice: "none",
		Options: inference.Options{"tools": tools, "max_tokens": 4}}
	if _, used := all(t, model, request); used.Prompt > 60 {
		t.Errorf("tool_choice none: the prompt has %d tokens, so that it has the tools", used.Prompt)
	}
	request.Options, request.ToolChoice = inference.Options{}, "required"
	if _, err := model.Generate(context.Background(), request); kindOf(err) != inference.Invalid {
		t.Errorf("required without tools: found %v", err)
	}
	for _, word := range []string{"auto", "none", "required"} {
		named := inference.Request{Messages: request.Messages, ToolChoice: "named", ToolName: word,
			Options: inference.Options{"tools": strings.ReplaceAll(tools, `"f"`, `"`+word+`"`), "max_tokens": 4}}
		if _, err := model.Generate(context.Background(), named); kindOf(err) != inference.Invalid || !strings.Contains(err.Error(), word) {
			t.Errorf("the function %q obliged: found %v", word, err)
		}
	}
	const short = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}<tool_call>\n{{ c.function | tojson }}\n</tool_call>{% endfor %}{% endfor %}"
	request.Options = inference.Options{"tools": tools, "temperature": 0.0, "template": short}
	cut := 0
	for limit := int64(20); limit < 50; limit += 3 {
		request.Options["max_tokens"] = limit
		events, _ := all(t, model, request)
		for _, event := range events {
			if event.Text != "" {
				t.Errorf("within %d tokens of calls, found the text %q", limit, event.Text)
			}
			if event.CutCall == nil {
				continue
			}
			cut++
			if event.Finish != inference.Length || event.CutCall.ID == "" || event.CutCall.Name != "f" {
				t.Errorf("found %+v", event)
			}
		}
	}
	if cut == 0 {
		t.Error("no call was cut")
	}
	var details endDetails
	if err := json.Unmarshal([]byte(`{"tokens":3,"message":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":{"x":1}}},{"id":"b","function":{"name":"g"}}]}}`), &details); err != nil {
		t.Fatal(err)
	}
	calls := details.calls()
	if len(calls) != 2 || calls[0].Arguments != `{"x":1}` || calls[1].Arguments != "{}" || calls[1].ID != "b" {
		t.Errorf("found %+v", calls)
	}
}

func TestRefusals(t *testing.T) {
	registry := open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}})
	if _, err := registry.Open(context.Background(), "x"); kindOf(err) != inference.NotFound {
		t.Errorf("unknown model: %v", err)
	}
	model := use(t, registry, "m")
	for name, request := range map[string]inference.Request{
		"long":    {Prompt: inference.Text{Words: strings.Repeat("x", 200)}},
		"tokens":  {Prompt: inference.Text{Tokens: []int32{1 << 20}}},
		"option":  {Prompt: inference.Text{Words: "x"}, Options: inference.Options{"no_option": 1}},
		"range":   {Prompt: inference.Text{Words: "x"}, Options: inference.Options{"temperature": -1.0}},
		"grammar": {Prompt: inference.Text{Words: "x"}, Options: inference.Options{"regex": "("}},
		"message": {Messages: json.RawMessage(`{"role":1}`)},
	} {
		_, err := model.Generate(context.Background(), request)
		if kindOf(err) != inference.Invalid {
			t.Errorf("%s: found %v", name, err)
		}
		var failure *inference.Error
		if name == "long" && (!errors.As(err, &failure) || failure.Code != "context_length_exceeded") {
			t.Errorf("%s: found %#v", name, err)
		}
	}
	if _, err := model.Detokenize([]int32{-1}); kindOf(err) != inference.Invalid {
		t.Errorf("detokenize: %v", err)
	}
}

func TestEmbedAndScore(t *testing.T) {
	model := use(t, open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}}), "m")
	rows, tokens, err := model.Embed(context.Background(), []inference.Text{{Words: "ab"}, {Tokens: []int32{97, 98}}}, inference.Options{"normalize": 1})
	if err != nil || len(rows) != 2 || len(rows[0]) != 32 || tokens != 4 {
		t.Fatalf("found %d rows of %d tokens, %v", len(rows), tokens, err)
	}
	length := 0.0
	for i, value := range rows[0] {
		length += float64(value) * float64(value)
		if value != rows[1][i] {
			t.Fatal("the same tokens have other vectors")
		}
	}
	if math.Abs(length-1) > 1e-5 { // f32 sums of 32 squares
		t.Errorf("found the length %v, wanted 1", length)
	}
	scores, err := model.Score(context.Background(), []inference.Text{{Words: "abcd"}}, []int{1})
	if err != nil || len(scores) != 1 || len(scores[0]) != 3 || scores[0][2].Token != 'd' || !(scores[0][0].Probability < 0) {
		t.Errorf("found %+v, %v", scores, err)
	}
}

// writeAdapter writes a folder of PEFT whose products are zero.
func writeAdapter(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	const name = "base_model.model.model.layers.0.self_attn.q_proj.lora_"
	const bytes = 2 * 32 * 4 // of each factor
	header := fmt.Sprintf(`{"%sA.weight":{"dtype":"F32","shape":[2,32],"data_offsets":[0,%d]},"%sB.weight":{"dtype":"F32","shape":[32,2],"data_offsets":[%d,%d]}}`,
		name, bytes, name, bytes, 2*bytes)
	file := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	file = append(append(file, header...), make([]byte, 2*bytes)...)
	config := `{"peft_type":"LORA","r":2,"lora_alpha":4,"target_modules":["model.layers.0.self_attn.q_proj"],"bias":"none","task_type":"CAUSAL_LM"}`
	for path, data := range map[string][]byte{"adapter_model.safetensors": file, "adapter_config.json": []byte(config)} {
		if err := os.WriteFile(filepath.Join(folder, path), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

func TestAdapters(t *testing.T) {
	folder := t.TempDir()
	path := writeModel(t, folder, "m")
	file := writeAdapter(t)
	registry := open(t, Config{Paths: []string{folder}, Adapters: map[string]string{"m:one": file}, Engine: tessera.Options{"adapters": 2}})
	if err := registry.LoadAdapter(context.Background(), "m:two", file); err != nil {
		t.Fatal(err)
	}
	for name, wanted := range map[string]inference.Kind{"m:two": inference.Conflict, "x:two": inference.NotFound, "two": inference.Invalid} {
		if err := registry.LoadAdapter(context.Background(), name, file); kindOf(err) != wanted {
			t.Errorf("%s: found %v, wanted %d", name, err, wanted)
		}
	}
	if err := registry.LoadAdapter(context.Background(), "m:three", path); err == nil {
		t.Error("a model without adapters was loaded as one")
	} else if _, err := registry.Open(context.Background(), "m:three"); kindOf(err) != inference.NotFound {
		t.Errorf("a name is left of it: %v", err)
	}
	request := inference.Request{Prompt: inference.Text{Words: "hello"}, Options: inference.Options{"seed": 3, "max_tokens": 8}}
	wanted, _ := all(t, use(t, registry, "m"), request)
	for _, name := range []string{"m:one", "m:two"} { // new adapters change nothing
		model := use(t, registry, name)
		if info := model.Info(); info.Name != name || info.Base != "m" {
			t.Errorf("found %+v", info)
		}
		if found, _ := all(t, model, request); textOf(found) != textOf(wanted) {
			t.Errorf("%s: found %q, wanted %q", name, textOf(found), textOf(wanted))
		}
	}
	if err := registry.UnloadAdapter("m:two"); err != nil {
		t.Error(err)
	}
	if _, err := registry.Open(context.Background(), "m:two"); kindOf(err) != inference.NotFound {
		t.Errorf("unloaded: found %v", err)
	}
	if len(registry.List()) != 2 {
		t.Errorf("found %+v", registry.List())
	}
}

// Corrupt files are an error of the request that names them, in the library's words, each time.
func TestCorruptAdapters(t *testing.T) {
	folder := t.TempDir()
	writeModel(t, folder, "m")
	cut, header, config := writeAdapter(t), writeAdapter(t), writeAdapter(t)
	weights := filepath.Join(cut, "adapter_model.safetensors")
	if err := os.Truncate(weights, 300); err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string]string{filepath.Join(header, "adapter_model.safetensors"): "\x10\x00\x00\x00\x00\x00\x00\x00no JSON at all...",
		filepath.Join(config, "adapter_config.json"): "{"} {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	adapters := map[string]string{"m:cut": cut, "m:header": header, "m:config": config, "m:sound": writeAdapter(t)}
	registry := open(t, Config{Paths: []string{folder}, Adapters: adapters, Engine: tessera.Options{"adapters": 2}})
	engine := use(t, registry, "m").(*opened).loaded.engine
	for _, name := range []string{"m:cut", "m:header", "m:config"} {
		_, said := engine.LoadAdapter(adapters[name])
		var failed *tessera.Error
		if !errors.As(said, &failed) || failed.Code != tessera.Corrupt {
			t.Fatalf("%s: found %v of the library, wanted code corrupt", name, said)
		}
		for i := 0; i < 2; i++ {
			_, err := registry.Open(context.Background(), name)
			var failure *inference.Error
			if !errors.As(err, &failure) || failure.Kind != inference.Invalid || failure.Message != failed.Message {
				t.Errorf("%s: found %#v, wanted 400 with %q", name, err, failed.Message)
			}
		}
	}
	use(t, registry, "m:sound")
}

func TestSnapshotsAreServedByTheBasesEngineWhereTheyFit(t *testing.T) {
	folder := t.TempDir()
	path := writeModel(t, folder, "m")
	registry := open(t, Config{Paths: []string{folder}, Engine: tessera.Options{"adapters": 1, "adapter_rank": 4}})
	base, err := tessera.LoadModel(path)
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	live := func(options tessera.Options) *tessera.Model {
		model, err := base.WithAdapters(options)
		if err != nil {
			t.Fatal(err)
		}
		return model
	}
	for name, options := range map[string]tessera.Options{"fits": {"rank": 4}, "wide": {"rank": 5}, "head": {"rank": 2, "on": "q_proj,lm_head"}} {
		if err := registry.PublishLive(name, "m", live(options)); err != nil {
			t.Fatal(err)
		}
	}
	if err := registry.PublishSnapshot("file", "m", writeAdapter(t)); err != nil {
		t.Fatal(err)
	}
	for _, base := range []string{"none", "fits"} {
		model := live(tessera.Options{"rank": 1})
		if err := registry.PublishLive("other", base, model); kindOf(err) != inference.NotFound {
			t.Errorf("over %s: found %v", base, err)
		}
		model.Close()
	}
	request := inference.Request{Prompt: inference.Text{Words: "hello"}, Options: inference.Options{"seed": 3, "max_tokens": 8}}
	wanted, _ := all(t, use(t, registry, "m"), request)
	for name, alone := range map[string]bool{"fits": false, "file": false, "wide": true, "head": true} {
		for range []int{0, 1} { // another model is used between
			model, err := registry.Open(context.Background(), name)
			if err != nil {
				t.Fatal(err)
			}
			if info := model.Info(); info.Name != name || info.Base != "m" {
				t.Errorf("found %+v", info)
			}
			if found, _ := all(t, model, request); textOf(found) != textOf(wanted) { // new adapters change nothing
				t.Errorf("%s: found %q, wanted %q", name, textOf(found), textOf(wanted))
			}
			if err := registry.Unload(name); kindOf(err) != inference.Conflict {
				t.Errorf("%s was unloaded under its user: %v", name, err)
			}
			model.Release()
			if own := registry.slots[name].ready != nil; own != alone {
				t.Errorf("%s has an engine of its own: %v, wanted %v", name, own, alone)
			}
			if err := registry.Unload(name); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if found := len(registry.List()); found != 1 {
		t.Errorf("%d names are listed, wanted the base", found)
	}
	opened := use(t, registry, "fits")
	registry.RetractSnapshot("fits")
	if _, err := registry.Open(context.Background(), "fits"); kindOf(err) != inference.NotFound {
		t.Errorf("found %v of a name that is gone", err)
	}
	if found, _ := all(t, opened, request); textOf(found) != textOf(wanted) {
		t.Error("a user of the name that is gone has another text")
	}
}

func TestCancel(t *testing.T) {
	registry := open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}})
	model := use(t, registry, "m")
	ctx, end := context.WithCancel(context.Background())
	stream, err := model.Generate(ctx, inference.Request{Prompt: inference.Text{Words: "x"}, Options: inference.Options{"ignore_eos": 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(ctx); err != nil {
		t.Fatal(err)
	}
	end()
	for err == nil {
		_, err = stream.Next(ctx)
	}
	if !errors.Is(err, context.Canceled) && err != io.EOF {
		t.Errorf("found %v", err)
	}
	stream.Close()
}

func TestMany(t *testing.T) {
	registry := open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}})
	model := use(t, registry, "m")
	wanted, _ := all(t, model, inference.Request{Prompt: inference.Text{Words: "hello"}, Options: inference.Options{"seed": 3, "max_tokens": 20}})
	var group sync.WaitGroup
	for i := 0; i < 32; i++ {
		group.Add(1)
		go func() {
			defer group.Done()
			model, err := registry.Open(context.Background(), "m")
			if err != nil {
				t.Error(err)
				return
			}
			defer model.Release()
			if found, _ := all(t, model, inference.Request{Prompt: inference.Text{Words: "hello"}, Options: inference.Options{"seed": 3, "max_tokens": 20}}); textOf(found) != textOf(wanted) {
				t.Errorf("found %q, wanted %q", textOf(found), textOf(wanted))
			}
		}()
	}
	group.Wait()
}

func TestQueue(t *testing.T) {
	q := queue{limit: 100}
	if q.enter(1000) != nil {
		t.Error("an empty queue admits any")
	}
	limited := q.enter(1)
	if limited == nil || limited.Kind != inference.Limited || limited.RetryAfter < 1 || !strings.Contains(limited.Message, "number 2") {
		t.Errorf("found %+v", limited)
	}
	q.leave(1000)
	if q.enter(60) != nil || q.enter(40) != nil || q.enter(1) == nil {
		t.Error("the queue's limit is not kept")
	}
}

// One huge prompt leaves room for others.
func TestQueueCountsOneContextAtMost(t *testing.T) {
	for _, each := range []struct{ estimated, context, wanted int64 }{{1000, 100, 100}, {100, 100, 100}, {7, 100, 7}, {1000, 0, 1000}} {
		if found := queuedTokens(each.estimated, each.context); found != each.wanted {
			t.Errorf("found %d of %d tokens in a context of %d, wanted %d", found, each.estimated, each.context, each.wanted)
		}
	}
	model := use(t, open(t, Config{Paths: []string{writeModel(t, t.TempDir(), "m")}, QueueTokens: 300}), "m").(*opened)
	held := model.loaded.queue.enter(1) // an empty queue admits any
	if held != nil {
		t.Fatal(held)
	}
	long := inference.Request{Prompt: inference.Text{Words: strings.Repeat("x", 4000)}} // some 1,000 tokens by their bytes
	if _, err := model.Generate(context.Background(), long); kindOf(err) != inference.Invalid {
		t.Errorf("found %v, wanted the engine's refusal of the length", err)
	}
	if found := model.loaded.queue.tokens; found != 1 {
		t.Errorf("found %d tokens in the queue after a refused prompt, wanted 1", found)
	}
}

func TestIdleAndAdmission(t *testing.T) {
	folder := t.TempDir()
	writeModel(t, folder, "a")
	writeModel(t, folder, "b")
	plain := open(t, Config{Paths: []string{folder}})
	use(t, plain, "a")
	bytes, _ := plain.takenBytes()
	if bytes <= 0 {
		t.Fatalf("a loaded model takes %d bytes", bytes)
	}
	registry := open(t, Config{Paths: []string{folder}, MemoryLimit: bytes + bytes/2, Idle: 200 * time.Millisecond})
	a, err := registry.Open(context.Background(), "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := registry.Open(context.Background(), "b"); kindOf(err) != inference.Overloaded {
		t.Errorf("no room: found %v", err)
	}
	if err := registry.Unload("a"); kindOf(err) != inference.Conflict {
		t.Errorf("in use: found %v", err)
	}
	a.Release()
	a.Release() // once counts
	if err := registry.Load(context.Background(), "b"); err != nil {
		t.Errorf("room could be made: %v", err)
	}
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if left, _ := registry.takenBytes(); left == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatal("idle models are not unloaded")
		}
	}
}

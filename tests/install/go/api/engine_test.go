package api_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"tessera.dev/tessera"
)

const talk = "{% for m in messages %}[{{ m.role }}]{{ m.content }};{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"

func newEngine(t *testing.T, options tessera.Options) *tessera.Engine {
	t.Helper()
	engine, err := tessera.NewEngine(newRuntime(t), newModel(t), options)
	return must(t, engine, err)
}

func Test_engines_serve_many_requests_as_one_at_a_time(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 12, "sequences": 3, "devices": "cpu:2"})
	defer engine.Close()
	before := runtime.NumGoroutine()
	ctx := context.Background()
	prompts := []string{"A computer", "is", "a\x00b", "A computer is", "x", "The tiles of one mosaic"}
	together := must2(engine.Generate(ctx, prompts, nil))
	for i, prompt := range prompts {
		alone := must2(must2(engine.Submit(prompt, nil)).Text(ctx))
		wanted(t, "alone", alone, together[i])
	}
	// Each goroutine waits for its own.
	var all sync.WaitGroup
	found := make([]string, 24)
	for i := range found {
		all.Add(1)
		go func(i int) {
			defer all.Done()
			stream := must2(engine.Submit(prompts[i%len(prompts)], nil)).Stream(ctx)
			for stream.Next() {
				found[i] += stream.Event().Text
			}
			if stream.Err() != nil {
				found[i] = stream.Err().Error()
			}
		}(i)
	}
	all.Wait()
	for i, text := range found {
		wanted(t, "text", text, together[i%len(prompts)])
	}
	ids := must2(must2(newModel(t).Tokenizer()).Encode("A computer"))
	wanted(t, "of ids", must2(must2(engine.SubmitTokens(ids, nil)).Text(ctx)), together[0])
	messages := []tessera.Message{{Role: "user", Content: "Hi"}}
	said := must2(engine.SubmitMessages(messages, tessera.Options{"template": talk}))
	wanted(t, "of messages", must2(said.Text(ctx)), must2(must2(engine.Submit("[user]Hi;[assistant]", nil)).Text(ctx)))
	texts := must2(must2(engine.Submit("A", tessera.Options{"n": 3, "temperature": 1.5, "seed": 1})).Texts(ctx))
	wanted(t, "texts", len(texts), 3)
	wanted(t, "texts that differ", texts[0] != texts[1] && texts[1] != texts[2], true)
	wanted(t, "report", strings.Contains(must2(engine.Report()), `"batch_invariant":true`), true)
	settled(t, before) // nothing is in progress, so that no goroutine distributes
}

func Test_events_of_an_engine(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 4, "n": 2})
	defer engine.Close()
	wanted(t, "descriptor", must2(engine.Descriptor()) >= 0, true)
	wanted(t, "nothing to wait for", must2(engine.Next(-1)).Kind, tessera.EventPending)
	wanted(t, "nothing", must2(engine.Next(time.Millisecond)).Kind, tessera.EventPending)
	one := must2(engine.Submit("A computer", tessera.Options{"logprobs": 1, "prompt_logprobs": 0}))
	two := must2(engine.Submit("is", tessera.Options{"n": 1}))
	wanted(t, "number", fmt.Sprint(one.Number(), two.Number()), "0 1")
	counts := map[string]int{}
	events := engine.Events(context.Background())
	for events.Next() {
		event := events.Event()
		counts[fmt.Sprint(event.Request, event.Index, event.Kind)]++
		switch event.Kind {
		case tessera.EventToken:
			wanted(t, "details", strings.Contains(event.Details, `"logprob"`), event.Request == 0)
		case tessera.EventEnd:
			wanted(t, "finish", fmt.Sprint(event.Finish, event.Failure()), "length <nil>")
			wanted(t, "details", strings.Contains(event.Details, `"tokens":4`), true)
		}
	}
	check(t, events.Err())
	wanted(t, "ends", fmt.Sprint(counts["0 0 2"], counts["0 1 2"], counts["1 0 2"], counts["0 0 3"]), "1 1 1 1")
	wanted(t, "tokens", counts["0 0 0"] >= 4 && counts["0 1 0"] >= 4 && counts["1 0 0"] >= 4, true)
	wanted(t, "at the end", fmt.Sprint(events.Next(), events.Event().Kind == tessera.EventPending), "false true")

	stream := one.Stream(context.Background())
	wanted(t, "both ways", stream.Next(), false)
	refused(t, stream.Err(), tessera.ErrFailedPrecondition, "collected by Next or Events")
	other := newEngine(t, tessera.Options{"max_tokens": 1})
	must2(must2(other.Submit("a", nil)).Text(context.Background()))
	refused(t, second(other.Next(0)), tessera.ErrFailedPrecondition, "collected by streams and texts")
	ended, end := context.WithCancel(context.Background())
	end()
	events = engine.Events(ended)
	wanted(t, "a context that has ended", events.Next(), false)
	wanted(t, "error", errors.Is(events.Err(), context.Canceled), true)
}

func Test_requests_end_with_their_context_and_their_engine(t *testing.T) {
	model := must2(tessera.NewModel("llama:L=2,C=64,H=4,F=128,V=256,T=8192", nil))
	check(t, model.SetTokenizer(must2(tessera.NewByteTokenizer())))
	before := runtime.NumGoroutine()
	engine := must2(tessera.NewEngine(newRuntime(t), model, tessera.Options{"context": 4000, "cache_tokens": 8192, "sequences": 4}))
	for i := 0; i < 3; i++ {
		ctx, end := context.WithCancel(context.Background())
		stream := must2(engine.Submit("A computer", nil)).Stream(ctx)
		other := must2(engine.Submit("A", tessera.Options{"max_tokens": 5}))
		for seen := 0; stream.Next(); seen++ {
			if seen == 3 {
				end()
			}
		}
		end()
		wanted(t, "error", errors.Is(stream.Err(), context.Canceled), true)
		wanted(t, "others go on", len(must2(other.Text(context.Background()))) > 0, true)
		deadline, endNow := context.WithTimeout(context.Background(), time.Millisecond)
		_, err := engine.Generate(deadline, []string{"A", "B"}, nil)
		endNow()
		wanted(t, "error", errors.Is(err, context.DeadlineExceeded), true)
	}
	request := must2(engine.Submit("A", nil))
	go request.Cancel()
	stream, finish := request.Stream(context.Background()), tessera.FinishNone
	for stream.Next() {
		finish = stream.Event().Finish
	}
	wanted(t, "cancelled", fmt.Sprint(finish, stream.Err()), "cancelled <nil>")
	stopped := must2(engine.Submit("A", nil)).Stream(context.Background())
	wanted(t, "next", stopped.Next(), true)
	stopped.Stop()
	wanted(t, "stopped", fmt.Sprint(stopped.Next(), stopped.Err()), "false <nil>")
	engine.Cancel(1 << 40)
	engine.Cancel(-1)
	// Who waits hears of the close, even where nothing would ever come.
	waiting := must2(engine.Submit("A", tessera.Options{"logits": 1})).Stream(context.Background())
	wanted(t, "logits", waiting.Next() && waiting.Event().Kind == tessera.EventLogits, true)
	go func() {
		time.Sleep(10 * time.Millisecond)
		engine.Close()
	}()
	wanted(t, "closed", waiting.Next(), false)
	refused(t, waiting.Err(), tessera.ErrInvalidArgument, "closed")
	for _, e := range []*tessera.Engine{engine, nil, {}} {
		refused(t, second(e.Submit("a", nil)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.SubmitTokens([]int32{1}, nil)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.SubmitMessages("[]", nil)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.Generate(context.Background(), []string{"a"}, nil)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.Report()), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.Descriptor()), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.Logits(0, 0)), tessera.ErrInvalidArgument, "engine")
		refused(t, e.Answer(0, 0, nil), tessera.ErrInvalidArgument, "engine")
		if e != engine {
			refused(t, second(e.Next(-1)), tessera.ErrInvalidArgument, "engine")
			events := e.Events(context.Background())
			wanted(t, "events", events.Next(), false)
			refused(t, events.Err(), tessera.ErrInvalidArgument, "engine")
		}
		e.Cancel(0)
		e.Close()
	}
	for _, r := range []*tessera.Request{nil, {}} {
		refused(t, second(r.Text(context.Background())), tessera.ErrInvalidArgument, "engine")
		refused(t, second(r.Logits(0)), tessera.ErrInvalidArgument, "engine")
		r.Cancel()
		wanted(t, "number", r.Number(), -1)
	}
	refused(t, second(tessera.NewEngine(nil, model, nil)), tessera.ErrInvalidArgument, "runtime")
	refused(t, second(tessera.NewEngine(newRuntime(t), nil, nil)), tessera.ErrInvalidArgument, "model")
	refused(t, second(tessera.NewEngine(newRuntime(t), model, tessera.Options{"sequence": 1})), tessera.ErrInvalidArgument, "sequences")
	settled(t, before)
}

func Test_wrong_requests_do_no_harm_to_others(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 20})
	defer engine.Close()
	ctx := context.Background()
	alone := must2(must2(engine.Submit("A computer", nil)).Text(ctx))
	right := must2(engine.Submit("A computer", nil))
	for _, text := range []string{"", "\xff", "\xed\xa0\x80", "a\x80b", strings.Repeat("x", 100000)} {
		for _, options := range []tessera.Options{nil, {"stop": text}, {"grammar": text}, {"logit_bias": text}, {text: 1}} {
			if request, err := engine.Submit(text, options); err == nil {
				request.Cancel()
			} else {
				refused(t, err, tessera.ErrInvalidArgument, "")
			}
		}
		_, _ = engine.SubmitMessages(text, tessera.Options{"template": talk})
	}
	refused(t, second(engine.Submit("a", tessera.Options{"n": "x"})), tessera.ErrInvalidArgument, "'n'")
	refused(t, second(engine.Submit("a", tessera.Options{"n": 0})), tessera.ErrInvalidArgument, "'n'")
	refused(t, second(engine.Submit("a", tessera.Options{"n": struct{}{}})), tessera.ErrInvalidArgument, `"n"`)
	refused(t, second(engine.SubmitTokens([]int32{1, 256}, nil)), tessera.ErrInvalidArgument, "256")
	refused(t, second(engine.SubmitTokens(nil, nil)), tessera.ErrInvalidArgument, "")
	refused(t, second(engine.SubmitMessages(make(chan int), nil)), tessera.ErrInvalidArgument, "messages")
	refused(t, second(engine.Logits(0, 0)), tessera.ErrNotFound, "does not wait")
	refused(t, engine.Answer(99, 0, nil), tessera.ErrNotFound, "does not wait")
	wanted(t, "text", must2(right.Text(ctx)), alone)
}

func Test_logits_may_be_changed(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6})
	defer engine.Close()
	ctx := context.Background()
	plain := must2(must2(engine.Submit("A computer", nil)).Text(ctx))
	wanted(t, "as they are", must2(must2(engine.Submit("A computer", tessera.Options{"logits": true})).Text(ctx)), plain)
	request := must2(engine.Submit("A computer", tessera.Options{"logits": true}))
	stream, text := request.Stream(ctx), ""
	for stream.Next() {
		event := stream.Event()
		text += event.Text
		if event.Kind != tessera.EventLogits {
			continue
		}
		logits := must2(request.Logits(event.Index))
		wanted(t, "logits", len(logits), 256)
		refused(t, request.Answer(event.Index, logits[:3]), tessera.ErrInvalidArgument, "256")
		for i := range logits {
			if i != 'x' {
				logits[i] = float32(math.Inf(-1))
			}
		}
		check(t, request.Answer(event.Index, logits))
	}
	check(t, stream.Err())
	wanted(t, "text", text, "xxxxxx")
}

func Test_vectors_and_scores_of_prompts(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6, "embeddings": 1, "n": 2})
	defer engine.Close()
	ctx, prompt := context.Background(), []int32("A computer")
	vector := must2(engine.SubmitTokens(prompt, tessera.Options{"embed": true, "normalize": true}))
	scored := must2(engine.SubmitTokens(prompt, tessera.Options{"score_from": 2}))
	rows := must2(vector.Embedding(ctx))
	wanted(t, "rows", len(rows), 1)
	squares := 0.0
	for _, value := range rows[0] {
		squares += float64(value) * float64(value)
	}
	wanted(t, "length 1", math.Abs(squares-1) < 1e-5, true)
	hidden := must2(must2(engine.SubmitTokens(prompt, tessera.Options{"embed": 1, "pooling": "none"})).Embedding(ctx))
	wanted(t, "hidden states", len(hidden), len(prompt))
	scores := must2(scored.Scores(ctx))
	wanted(t, "scores", len(scores.LogProbs), len(prompt)-2)
	wanted(t, "greedy", len(scores.Greedy), len(prompt)-2)
	wanted(t, "a logarithm", scores.LogProbs[0] < 0, true)
	refused(t, second(engine.Scores(scored.Number())), tessera.ErrNotFound, "no scores")
	refused(t, second(engine.Submit("a", tessera.Options{"embed": 1, "max_tokens": 3})), tessera.ErrInvalidArgument, "max_tokens")
}

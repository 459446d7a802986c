package api_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"tessera.dev/tessera"
)

func Test_sequences_are_values(t *testing.T) {
	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6})
	defer engine.Close()
	ctx := context.Background()
	request := must2(engine.Submit("A computer", tessera.Options{"keep": true, "n": 2, "temperature": 1.0}))
	must2(request.Texts(ctx))
	first := must2(request.Sequence(0))
	must2(request.Sequence(1))
	refused(t, second(request.Sequence(0)), tessera.ErrNotFound, "not kept")
	refused(t, second(request.Sequence(-1)), tessera.ErrNotFound, "not kept")
	refused(t, second(engine.Sequence(1<<40, 0)), tessera.ErrNotFound, "not kept")
	tokens := must2(first.Tokens())
	wanted(t, "tokens", len(tokens), 16)
	fork := must2(first.Fork())
	check(t, fork.Rewind(12))
	wanted(t, "a fork", len(must2(fork.Tokens())), 12)
	wanted(t, "the original", len(must2(first.Tokens())), 16)
	for _, count := range []int{0, 13, -1, -1 << 63} {
		refused(t, fork.Rewind(count), tessera.ErrInvalidArgument, "wanted 1 to as many")
	}
	// It goes on as its tokens would, also in another engine.
	text := must2(must2(engine.SubmitTokens(append(append([]int32{}, tokens[:12]...), 'x'), nil)).Text(ctx))
	wanted(t, "text", must2(must2(engine.SubmitSequence(fork, []int32{'x'}, nil)).Text(ctx)), text)
	other := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6})
	wanted(t, "elsewhere", must2(must2(other.SubmitSequence(fork, []int32{'x'}, nil)).Text(ctx)), text)
	refused(t, second(engine.SubmitSequence(fork, []int32{-1}, nil)), tessera.ErrInvalidArgument, "-1")
	refused(t, second(engine.SubmitSequence(fork, make([]int32, 10000), nil)), tessera.ErrInvalidArgument, "context")

	path := filepath.Join(t.TempDir(), "sequence")
	check(t, engine.SaveSequence(fork, path))
	restored := must2(other.RestoreSequence(path))
	wanted(t, "restored", must2(must2(other.SubmitSequence(restored, []int32{'x'}, nil)).Text(ctx)), text)
	refused(t, engine.SaveSequence(fork, filepath.Join(path, "none")), tessera.ErrNotFound, "cannot create")
	refused(t, engine.SaveSequence(fork, "a\x00b"), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(engine.RestoreSequence("a\x00b")), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(engine.RestoreSequence("nowhere")), tessera.ErrNotFound, "nowhere")
	data := must2(os.ReadFile(path))
	data[len(data)/2] ^= 1
	check(t, os.WriteFile(path, data, 0o600))
	refused(t, second(engine.RestoreSequence(path)), tessera.ErrCorrupt, "")

	other.Close()
	wanted(t, "without its engine", len(must2(restored.Tokens())), 12)
	fork.Close()
	for _, s := range []*tessera.Sequence{fork, nil, {}} {
		refused(t, second(s.Fork()), tessera.ErrInvalidArgument, "sequence")
		refused(t, second(s.Tokens()), tessera.ErrInvalidArgument, "sequence")
		refused(t, s.Rewind(1), tessera.ErrInvalidArgument, "sequence")
		refused(t, second(engine.SubmitSequence(s, nil, nil)), tessera.ErrInvalidArgument, "sequence")
		refused(t, engine.SaveSequence(s, path), tessera.ErrInvalidArgument, "sequence")
		s.Close()
	}
	for _, e := range []*tessera.Engine{other, nil, {}} {
		refused(t, second(e.Sequence(0, 0)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.SubmitSequence(first, nil, nil)), tessera.ErrInvalidArgument, "engine")
		refused(t, e.SaveSequence(first, path), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.RestoreSequence(path)), tessera.ErrInvalidArgument, "engine")
		refused(t, second(e.LoadAdapter(path)), tessera.ErrInvalidArgument, "engine")
		refused(t, e.DropAdapter(0), tessera.ErrInvalidArgument, "engine")
	}
	refused(t, second((*tessera.Request)(nil).Sequence(0)), tessera.ErrInvalidArgument, "engine")
}

func Test_requests_may_each_have_an_adapter(t *testing.T) {
	ctx := context.Background()
	base := newModel(t)
	adapted := must2(base.WithAdapters(tessera.Options{"rank": 2}))
	data := must2(tessera.ReadDataset(strings.NewReader(strings.Repeat("to be or not to be, ", 50)), must2(base.Tokenizer()),
		tessera.Options{"seq": 32}))
	trainer := must2(tessera.NewTrainer(newRuntime(t), adapted, data, tessera.Options{"batch": 4, "steps": 10, "lr": 0.1}))
	for i := 0; i < 10; i++ {
		must2(trainer.Step())
	}
	check(t, trainer.Store(adapted))
	several := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6, "adapters": 2})
	defer several.Close()
	live := must2(several.LoadAdapterFromTrainer(trainer))
	trainer.Close()
	refused(t, second(several.LoadAdapterFromTrainer(trainer)), tessera.ErrInvalidArgument, "trainer")
	refused(t, second(several.LoadAdapterFromModel(base)), tessera.ErrInvalidArgument, "no low-rank adapters")
	same := must2(several.LoadAdapterFromModel(adapted))
	path := filepath.Join(t.TempDir(), "adapter")
	must2(adapted.Export(ctx, path, tessera.Options{"format": "peft"}, nil))

	engine := newEngine(t, tessera.Options{"temperature": 0, "max_tokens": 6, "adapters": 1})
	defer engine.Close()
	plain := must2(must2(engine.Submit("to be", nil)).Text(ctx))
	number := must2(engine.LoadAdapter(path))
	request := must2(engine.Submit("to be", tessera.Options{"adapter": number, "keep": true}))
	changed := must2(request.Text(ctx))
	wanted(t, "another text", changed != plain, true)
	for _, other := range []int64{live, same} {
		wanted(t, "without a file", must2(must2(several.Submit("to be", tessera.Options{"adapter": other})).Text(ctx)), changed)
	}
	wanted(t, "without it", must2(must2(engine.Submit("to be", nil)).Text(ctx)), plain)
	refused(t, engine.SaveSequence(must2(request.Sequence(0)), path+".kv"), tessera.ErrUnsupported, "adapter")
	check(t, engine.DropAdapter(number))
	refused(t, engine.DropAdapter(number), tessera.ErrNotFound, "")
	if _, err := engine.Submit("to be", tessera.Options{"adapter": number}); err == nil {
		t.Error("an adapter that was dropped was taken")
	}
	refused(t, second(engine.LoadAdapter("nowhere")), tessera.ErrNotFound, "nowhere")
	refused(t, second(engine.LoadAdapter("a\x00b")), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(newEngine(t, nil).LoadAdapter(path)), tessera.ErrFailedPrecondition, "adapters")
}

package api_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"tessera.dev/tessera"
)

func Test_streams_give_tokens_text_and_why_they_end(t *testing.T) {
	generator := must2(tessera.NewGenerator(newRuntime(t), newModel(t), tessera.Options{"temperature": 0, "max_tokens": 5, "trace": true}))
	ctx := context.Background()
	stream := generator.Stream(ctx, "A computer", nil)
	var tokens []int32
	text := ""
	for stream.Next() {
		if stream.Piece().Token >= 0 {
			tokens = append(tokens, stream.Piece().Token)
		}
		text += stream.Piece().Text
	}
	check(t, stream.Err())
	wanted(t, "finish", stream.Finish(), tessera.FinishLength)
	wanted(t, "tokens", len(tokens), 5)
	wanted(t, "a stream that has ended", stream.Next(), false)
	wanted(t, "all at once", must2(generator.Generate(ctx, "A computer", nil)), text)
	logits := must2(generator.Logits())
	wanted(t, "logits", logits.String(), "f32[256]")
	wanted(t, "trace", strings.HasPrefix(must2(generator.Trace()), "["), true)
	ids := must2(must2(newModel(t).Tokenizer()).Encode("A computer"))
	wanted(t, "of ids", must2(generator.GenerateTokens(ctx, ids, nil)), text)

	stop := fmt.Sprint(tokens[1])
	stream = generator.Stream(ctx, "A computer", tessera.Options{"stop_ids": stop})
	for stream.Next() {
	}
	wanted(t, "finish", fmt.Sprint(stream.Finish(), stream.Err()), "stop <nil>")
	stream = generator.Stream(ctx, "A computer", tessera.Options{"stop_ids": "x"})
	wanted(t, "a wrong option", stream.Next(), false)
	refused(t, stream.Err(), tessera.ErrInvalidArgument, "stop_ids")

	check(t, generator.StartTokens(ids))
	count, pending := 0, 0
	for {
		piece := must2(generator.Next(0))
		if piece.Kind == tessera.PieceEnd {
			wanted(t, "finish", piece.Finish, tessera.FinishLength)
			break
		}
		if piece.Kind == tessera.PiecePending {
			pending++
			time.Sleep(time.Millisecond)
		} else if piece.Token >= 0 {
			count++
		}
	}
	wanted(t, "polled tokens", count, 5)
	generator.Close()
	stream = generator.Stream(ctx, "A", nil)
	wanted(t, "closed", stream.Next(), false)
	refused(t, stream.Err(), tessera.ErrInvalidArgument, "generator")
}

func Test_streams_end_with_their_context_and_leave_nothing(t *testing.T) {
	r := newRuntime(t)
	model := must2(tessera.NewModel("llama:L=2,C=64,H=4,F=128,V=256,T=8192", nil))
	check(t, model.SetTokenizer(must2(tessera.NewByteTokenizer())))
	generator := must2(tessera.NewGenerator(r, model, tessera.Options{"context": 8000}))
	must2(generator.Generate(context.Background(), "A", tessera.Options{"max_tokens": 1}))
	before := runtime.NumGoroutine()
	for i := 0; i < 10; i++ {
		ctx, end := context.WithCancel(context.Background())
		stream := generator.Stream(ctx, "A computer", nil)
		for seen := 0; stream.Next(); seen++ {
			if seen == 3 {
				end()
			}
		}
		end()
		wanted(t, "error", errors.Is(stream.Err(), context.Canceled), true)
		stream = generator.Stream(context.Background(), "A computer", nil)
		wanted(t, "next", stream.Next(), true)
		stream.Stop()
		wanted(t, "stopped", fmt.Sprint(stream.Next(), stream.Finish(), stream.Err()), "false cancelled <nil>")
		ended, endNow := context.WithDeadline(context.Background(), time.Now())
		stream = generator.Stream(ended, "A", nil)
		endNow()
		wanted(t, "never begun", fmt.Sprint(stream.Next(), stream.Err()), "false context deadline exceeded")
	}
	settled(t, before)
	wanted(t, "usable", len(must2(generator.Generate(context.Background(), "A", tessera.Options{"max_tokens": 3}))) > 0, true)
}

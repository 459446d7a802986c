// Handles by the thousand: made, used, closed in any order or left to finalisers, cancelled from other goroutines, with
// callbacks of C among them; resident memory must stay as it is. Arguments: cycles, trainings.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tessera.dev/tessera"
)

func must[T any](value T, err error) T {
	check(err)
	return value
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type closer interface{ Close() }

const description = "llama:L=1,C=32,H=4,F=64,V=256,T=64"

var released, borrowed atomic.Int64

// cycle makes one of each handle, uses it, and closes all in an order of chance, or none.
func cycle(number int, file []byte, chance *rand.Rand) {
	r := must(tessera.NewRuntime(nil))
	model := must(tessera.NewModel(description, tessera.Options{"seed": number}))
	tokenizer := must(tessera.NewByteTokenizer())
	check(model.SetTokenizer(tokenizer))
	tensor := must(tessera.TensorOf([]float32{1, 2, 3}))
	data, free, err := tessera.CMemory(16)
	check(err)
	borrowed.Add(1)
	memory := must(tessera.BorrowTensor(tessera.F32, data, func() { free(); released.Add(1) }, 4))
	dataset := must(tessera.NewDatasetTokens(make([]int32, 200), tessera.Options{"seq": 16}))
	graph := must(model.Graph())
	view := must(model.Read("output"))
	devices := must(tessera.OpenDevices(r, "cpu:1"))
	chat := must(tessera.NewChatText("{{ messages[0].content }}", tokenizer))
	handles := []closer{r, model, tokenizer, tensor, memory, dataset, graph, view, devices, chat}
	if number%10 == 0 {
		read := must(tessera.LoadModelReader(bytes.NewReader(file), int64(len(file))))
		copied := must(tessera.LoadModelBytes(file))
		generator := must(tessera.NewGenerator(r, read, tessera.Options{"max_tokens": 2, "context": 32}))
		must(generator.Generate(context.Background(), "ab", nil))
		ctx, cancel := context.WithCancel(context.Background())
		stream := generator.Stream(ctx, "abc", tessera.Options{"max_tokens": 20})
		stream.Next()
		cancel()
		for stream.Next() {
		}
		engine := must(tessera.NewEngine(r, read, tessera.Options{"max_tokens": 3, "context": 32, "sequences": 2}))
		must(engine.Generate(context.Background(), []string{"ab", "c", "abc"}, nil))
		kept := must(engine.Submit("ab", tessera.Options{"keep": true}))
		must(kept.Text(context.Background()))
		sequence := must(kept.Sequence(0))
		must(engine.Submit("in progress", nil)).Stream(context.Background()).Next()
		scorer := must(tessera.NewScorer(r, copied, tessera.Options{"seq": 16}))
		must(scorer.Score([][]int32{{1, 2, 3}}, nil))
		handles = append(handles, read, copied, generator, engine, sequence, must(sequence.Fork()), scorer)
	}
	_, err = tessera.LoadModelBytes(file[:len(file)/2])
	if !errors.Is(err, tessera.ErrCorrupt) {
		check(fmt.Errorf("half a file: found %v, wanted code corrupt", err))
	}
	chance.Shuffle(len(handles), func(i, j int) { handles[i], handles[j] = handles[j], handles[i] })
	if number%2 == 0 {
		for _, handle := range handles {
			handle.Close()
		}
	}
}

// train makes a trainer, which another goroutine may cancel or close at any time.
func train(number int, ended *atomic.Int64) {
	r := must(tessera.NewRuntime(nil))
	model := must(tessera.NewModel(description, tessera.Options{"seed": number}))
	check(model.SetTokenizer(must(tessera.NewByteTokenizer())))
	text := strings.Repeat("The tiles of one mosaic lie side by side. ", 20)
	dataset := must(tessera.NewDataset(text, must(model.Tokenizer()), tessera.Options{"seq": 32}))
	trainer := must(tessera.NewTrainer(r, model, dataset, tessera.Options{"devices": "cpu:2", "batch": 4, "steps": 50}))
	var others sync.WaitGroup
	if number%2 == 1 {
		others.Add(1)
		go func() {
			defer others.Done()
			time.Sleep(time.Duration(rand.Intn(5000)) * time.Microsecond)
			if number%4 == 1 {
				trainer.Cancel()
			} else {
				trainer.Close()
			}
		}()
	}
	for i := 0; i < 10; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		_, err := trainer.StepContext(ctx)
		cancel()
		if err != nil {
			if number%2 == 0 || !errors.Is(err, tessera.ErrCancelled) && !errors.Is(err, tessera.ErrInvalidArgument) {
				check(err)
			}
			ended.Add(1)
			break
		}
	}
	others.Wait()
	if number%3 == 0 {
		trainer.Close()
	}
}

// resident is the memory of this process, in bytes, after garbage is gone.
func resident() int64 {
	for i := 0; i < 5; i++ {
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	fields := strings.Fields(string(must(os.ReadFile("/proc/self/statm"))))
	return must(strconv.ParseInt(fields[1], 10, 64)) * int64(os.Getpagesize())
}

// steady runs a body count times, and compares memory after a quarter of them with memory at the end.
func steady(what string, count int, body func(number int)) {
	var early int64
	for i := 0; i < count; i++ {
		body(i)
		if i%10 == 9 { // what is left to finalisers is bounded
			runtime.GC()
		}
		if i == count/4 {
			early = resident()
		}
	}
	late := resident()
	fmt.Printf("%d %s: resident memory from %.1f to %.1f MiB\n", count, what, float64(early)/(1<<20), float64(late)/(1<<20))
	if late > early+early/10+16<<20 {
		check(fmt.Errorf("%s: resident memory grows", what))
	}
}

func main() {
	cycles, trainings := must(strconv.Atoi(os.Args[1])), must(strconv.Atoi(os.Args[2]))
	path := must(os.CreateTemp("", "cycles-*.tsr")).Name()
	defer os.Remove(path)
	made := must(tessera.NewModel(description, nil))
	check(made.SetTokenizer(must(tessera.NewByteTokenizer())))
	check(made.Save(path))
	file := must(os.ReadFile(path))
	goroutines := runtime.NumGoroutine()

	chance := rand.New(rand.NewSource(1))
	steady("cycles", cycles, func(number int) { cycle(number, file, chance) })
	var ended atomic.Int64
	steady("trainings", trainings, func(number int) { train(number, &ended) })
	fmt.Printf("%d trainings were ended by other goroutines\n", ended.Load())

	for i := 0; released.Load() < borrowed.Load() || runtime.NumGoroutine() > goroutines; i++ {
		if i == 500 {
			check(fmt.Errorf("%d of %d memories given back, %d goroutines, %d before", released.Load(), borrowed.Load(),
				runtime.NumGoroutine(), goroutines))
		}
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
}

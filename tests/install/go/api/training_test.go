package api_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"tessera.dev/tessera"
)

var prose = strings.Repeat("A computer is a machine that computes. ", 60)

func Test_datasets_come_from_texts_ids_and_readers(t *testing.T) {
	tokenizer := must2(tessera.NewByteTokenizer())
	options := tessera.Options{"seq": 16, "shuffle": false, "eval_fraction": 0.1}
	text := must2(tessera.NewDataset(prose, tokenizer, options))
	wanted(t, "info", strings.Contains(must2(text.Info()), fmt.Sprintf(`"tokens":%d,`, len(prose))), true)
	read := must2(tessera.ReadDataset(strings.NewReader(prose), tokenizer, options))
	ids := must2(tessera.NewDatasetTokens(must2(tokenizer.Encode(prose)), options))
	batch := fmt.Sprint(must2(text.Batch(3, 2)))
	wanted(t, "read", fmt.Sprint(must2(read.Batch(3, 2))), batch)
	wanted(t, "ids", fmt.Sprint(must2(ids.Batch(3, 2))), batch)
	wanted(t, "shape", fmt.Sprint(len(must2(ids.Batch(0, 2))), len(must2(ids.Batch(0, 2))[1])), "2 17")
	wanted(t, "text", must2(tokenizer.Decode(must2(text.Batch(0, 1))[0])), prose[:17])

	ours := errors.New("the line is dead")
	_, err := tessera.ReadDataset(iotest.ErrReader(ours), tokenizer, options)
	wanted(t, "the reader's error", errors.Is(err, ours), true)
	refused(t, second(tessera.ReadDataset(nil, tokenizer, options)), tessera.ErrInvalidArgument, "reader")
	refused(t, second(tessera.NewDataset("short", tokenizer, options)), tessera.ErrInvalidArgument, "")
	refused(t, second(tessera.NewDatasetTokens(nil, options)), tessera.ErrInvalidArgument, "")
	refused(t, second(tessera.NewDatasetTokens([]int32{1}, tessera.Options{"sequence": 1})), tessera.ErrInvalidArgument, "seq")
	refused(t, second(tessera.NewDatasetTokens([]int32{1}, tessera.Options{"seq": struct{}{}})), tessera.ErrInvalidArgument, "struct {}")
	refused(t, second(text.Batch(0, -1)), tessera.ErrInvalidArgument, "")
}

func Test_trainers_show_their_values_plan_and_trace(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	data := must2(tessera.NewDataset(prose, must2(model.Tokenizer()), tessera.Options{"seq": 16, "eval_fraction": 0.1}))
	trainer := must2(tessera.NewTrainer(r, model, data, tessera.Options{"devices": "cpu:2", "parallel": "dp=2", "batch": 4, "trace": true}))
	first := must2(trainer.Step())
	wanted(t, "step", fmt.Sprint(first.Step, first.Loss > 5, first.GradNorm > 0, first.LR > 0), "1 true true true")
	wanted(t, "plan", strings.Contains(must2(must2(trainer.Plan()).Info()), `"strategy":"dp=2`), true)
	wanted(t, "trace", strings.HasPrefix(must2(trainer.Trace()), "["), true)
	value := must2(trainer.Read("output"))
	moment := must2(trainer.Read("output.m"))
	wanted(t, "shapes", value.String(), moment.String())
	zeros := must2(tessera.NewTensor(tessera.F32, value.Dims()...))
	check(t, trainer.Write("output", zeros))
	wanted(t, "written", must2(tessera.Values[float32](must2(trainer.Read("output"))))[0], 0)
	wanted(t, "loss of equal chances", fmt.Sprintf("%.4f", must2(trainer.Evaluate())), fmt.Sprintf("%.4f", math.Log(256)))
	refused(t, second(trainer.Read("outputs")), tessera.ErrNotFound, "output")
	refused(t, trainer.Write("output", must2(tessera.NewTensor(tessera.F32, 1))), tessera.ErrInvalidArgument, "")
	refused(t, trainer.Feed("tokens", zeros), tessera.ErrInvalidArgument, "tokens")
	check(t, trainer.Store(model))

	// Texts of the weights being trained are those of the model that they were stored in.
	ctx := context.Background()
	likeliest := tessera.Options{"max_tokens": 5, "temperature": 0.0}
	stored := must2(tessera.NewGenerator(r, model, tessera.Options{"context": 32}))
	text := must2(stored.Generate(ctx, "A", likeliest))
	engine := must2(tessera.NewTrainedEngine(trainer, tessera.Options{"context": 32, "sequences": 2}))
	defer engine.Close()
	wanted(t, "engine", must2(engine.Generate(ctx, []string{"A"}, likeliest))[0], text)
	generator := must2(tessera.NewTrainedGenerator(trainer, tessera.Options{"context": 32}))
	wanted(t, "generator", must2(generator.Generate(ctx, "A", likeliest)), text)
	refused(t, second(tessera.NewTrainedEngine(trainer, tessera.Options{"devices": "cpu:1"})), tessera.ErrInvalidArgument, "devices")
	refused(t, second(tessera.NewTrainedGenerator(nil, nil)), tessera.ErrInvalidArgument, "")

	folder := filepath.Join(t.TempDir(), "weights")
	alone := tessera.Options{"optimizer": 0}
	check(t, trainer.SaveState(folder, alone))
	check(t, trainer.LoadState(folder, alone))
	wanted(t, "a new training", must2(trainer.Step()).Step, 1)
	refused(t, trainer.LoadState(folder, nil), tessera.ErrInvalidArgument, "optimizer")
}

func Test_run_logs_write_what_a_training_did(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	data := must2(tessera.NewDataset(prose, must2(model.Tokenizer()), tessera.Options{"seq": 16, "eval_fraction": 0.1}))
	trainer := must2(tessera.NewTrainer(r, model, data, tessera.Options{"batch": 4, "steps": 3}))
	folder := t.TempDir()
	metrics := filepath.Join(folder, "run.jsonl")
	log := must2(tessera.NewRunLog(trainer, tessera.Options{"metrics": metrics, "tensorboard": filepath.Join(folder, "events"),
		"report": filepath.Join(folder, "run.html"), "model": "small"}))
	refused(t, log.Step(), tessera.ErrFailedPrecondition, "no step")
	must2(trainer.Step())
	check(t, log.Step())
	check(t, log.Evaluation(must2(trainer.Evaluate())))
	check(t, log.EvaluationWithAccuracy(2, 0.5))
	refused(t, log.EvaluationWithAccuracy(2, 50), tessera.ErrInvalidArgument, "accuracy is 50")
	check(t, log.Value("margin", math.NaN()))
	check(t, log.Sample("Once", "upon\x00a time"))
	check(t, log.Checkpoint(folder))
	wanted(t, "summary", strings.Contains(must2(log.Summary()), `"best_eval_loss":2.0`), true)
	check(t, log.Finish(""))
	refused(t, log.Finish(""), tessera.ErrFailedPrecondition, "finished already")
	log.Close()
	refused(t, log.Step(), tessera.ErrInvalidArgument, "")
	wanted(t, "lines", strings.Count(string(must2(os.ReadFile(metrics))), "\n"), 8)
	wanted(t, "page", strings.Contains(string(must2(os.ReadFile(filepath.Join(folder, "run.html")))), `"state":"finished"`), true)
	wanted(t, "events", len(must2(os.ReadDir(filepath.Join(folder, "events")))), 1)
	refused(t, second(tessera.NewRunLog(trainer, tessera.Options{"metrics": filepath.Join(folder, "run.html")})),
		tessera.ErrExists, "no file of metrics")
}

func Test_preferences_are_trained_on_with_progress_and_rewards(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	rows := `{"prompt": "ab", "chosen": "cde", "rejected": "f"}` + "\n" + `{"prompt": "x", "chosen": "y", "rejected": "zz"}` + "\n"
	data := must2(tessera.NewDataset(rows, must2(model.Tokenizer()), tessera.Options{"kind": "preference", "seq": 16}))
	var share float64
	trainer := must2(tessera.PrepareTrainer(context.Background(), r, model, data,
		tessera.Options{"loss": "dpo", "batch": 2, "lr": 0.01, "warmup": 0}, func(done float64) { share = done }))
	wanted(t, "share", share, 1.0)
	wanted(t, "loss of the start", fmt.Sprintf("%.4f", must2(trainer.Step()).Loss), fmt.Sprintf("%.4f", math.Log(2)))
	step := must2(trainer.Step())
	wanted(t, "rewards", fmt.Sprint(step.RewardMargin > 0, step.ChosenReward > step.RejectedReward, step.RewardAccuracy > 0), "true true true")
	refused(t, second(tessera.NewTrainer(r, model, data, tessera.Options{"loss": "kto"})), tessera.ErrInvalidArgument, "kind unpaired")
}

func Test_trainers_of_own_graphs_learn_what_they_are_fed(t *testing.T) {
	r := newRuntime(t)
	model := must2(tessera.NewModelFromGraph(linear(t), tessera.Options{"seed": 3}))
	trainer := must2(tessera.NewTrainer(r, model, nil, tessera.Options{"batch": 2, "lr": 0.1, "warmup": 0}))
	refused(t, second(trainer.Step()), tessera.ErrFailedPrecondition, "x")
	check(t, trainer.Feed("x", must2(tessera.TensorOf([]float32{1, 0, 0, 1}, 2, 2))))
	before := must2(trainer.Evaluate())
	for i := 0; i < 20; i++ {
		must2(trainer.Step())
	}
	wanted(t, "loss falls", must2(trainer.Evaluate()) < before/2, true)
	refused(t, trainer.Feed("x", must2(tessera.TensorOf([]float32{1}))), tessera.ErrInvalidArgument, "")
	refused(t, trainer.Feed("x", nil), tessera.ErrInvalidArgument, "")
}

func Test_contexts_end_calls_and_leave_no_goroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRuntime(t)
	big := must2(tessera.NewModel("llama:L=2,C=128,H=4,F=512,V=256,T=256", nil))
	check(t, big.SetTokenizer(must2(tessera.NewByteTokenizer())))
	data := must2(tessera.NewDataset(strings.Repeat(prose, 10), must2(big.Tokenizer()), tessera.Options{"seq": 256, "eval_fraction": 0.2}))
	options := tessera.Options{"batch": 32, "devices": "cpu:1"}
	soon := func() (context.Context, context.CancelFunc) {
		return context.WithTimeout(context.Background(), 30*time.Millisecond)
	}

	trainer := must2(tessera.NewTrainerContext(context.Background(), r, big, data, options))
	ctx, end := soon()
	began := time.Now()
	_, err := trainer.StepContext(ctx)
	end()
	wanted(t, "a step", errors.Is(err, context.DeadlineExceeded), true)
	wanted(t, "ends soon", time.Since(began) < 5*time.Second, true)
	refused(t, second(trainer.Step()), tessera.ErrValuesLost, "")
	trainer.Close()

	scorer := must2(tessera.NewScorer(r, big, tessera.Options{"seq": 256}))
	ids := make([]int32, 20000)
	for _, progress := range []func(float64){nil, func(float64) {}} {
		ctx, end = soon()
		_, err = scorer.ScoreContext(ctx, [][]int32{ids}, progress)
		end()
		wanted(t, "a score", errors.Is(err, context.DeadlineExceeded), true)
	}
	ctx, end = context.WithCancel(context.Background())
	end()
	_, err = tessera.NewTrainerContext(ctx, r, big, data, options)
	wanted(t, "a trainer", errors.Is(err, context.Canceled), true)
	_, err = tessera.NewGeneratorContext(ctx, r, big, nil)
	wanted(t, "a generator", errors.Is(err, context.Canceled), true)
	_, err = tessera.Calibrate(ctx, r, nil, nil)
	wanted(t, "a calibration", errors.Is(err, context.Canceled), true)
	scorer.Close()
	settled(t, before)
}

func Test_runtimes_hand_out_their_log(t *testing.T) {
	r := must2(tessera.NewRuntime(tessera.Options{"log_level": "debug", "profile": "none"}))
	path := filepath.Join(t.TempDir(), "q8.tsr") // training it takes more bits, which the log says
	must2(newModel(t).Quantize(path, tessera.Options{"type": "q8_0"}))
	must2(tessera.NewTrainer(r, must2(tessera.LoadModel(path)), must2(tessera.NewDatasetTokens(make([]int32, 1000), tessera.Options{"seq": 32})), nil))
	logs := must2(r.Logs())
	for _, record := range logs {
		wanted(t, "a record has text and level", record.Message != "" && record.Level.String() != "unknown", true)
	}
	_, found, err := r.NextLog()
	wanted(t, "all taken", fmt.Sprint(found, err, len(logs) > 0), "false <nil> true")
	wanted(t, "backends", strings.Contains(must2(r.Backends()), `"name":"cpu"`), true)
	r.Close()
	refused(t, second(r.Logs()), tessera.ErrInvalidArgument, "runtime")
}

func Test_scores_and_vectors_come_at_once_or_in_steps(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	texts := [][]int32{{1, 2, 3}, {}, {4, 5}}
	scorer := must2(tessera.NewScorer(r, model, tessera.Options{"seq": 16}))
	bits := func(scores []tessera.Scores) string { return fmt.Sprint(scores) }
	once := bits(must2(scorer.Score(texts, nil)))
	wanted(t, "in steps", bits(must2(scorer.Score(texts, func(float64) {}))), once)
	wanted(t, "of the model", bits(must2(model.Score(r, texts, tessera.Options{"seq": 16}))), once)
	refused(t, second(model.Score(nil, texts, nil)), tessera.ErrInvalidArgument, "runtime")

	for _, pairs := range []bool{false, true} {
		embedder := must2(tessera.NewEmbedder(r, model, tessera.Options{"pairs": pairs}))
		words := []string{"a", "bc", "e", "d"}
		all, err := embedder.Embed(words, nil)
		if pairs && err != nil { // this tokenizer puts nothing between two texts
			refused(t, err, tessera.ErrInvalidArgument, "")
			continue
		}
		check(t, err)
		wanted(t, "rows", fmt.Sprint(must2(embedder.Embed(words, func(float64) {}))), fmt.Sprint(all))
		wanted(t, "width", must2(embedder.Width()), len(all[0]))
	}
}

func Test_adapters_train_side_by_side(t *testing.T) {
	r, model, ctx := newRuntime(t), newModel(t), context.Background()
	batch := func(rows int) tessera.Batch {
		b := tessera.Batch{Seq: 8}
		for i := 0; i < 8*rows; i++ {
			b.Tokens, b.Labels = append(b.Tokens, int32(i%8)), append(b.Labels, int32((i+1)%8))
		}
		return b
	}
	losses := func(adapters ...int) (found []float64, trainer *tessera.AdapterTrainer, numbers []int64) {
		trainer = must2(tessera.NewAdapterTrainer(ctx, r, model, tessera.Options{"devices": "cpu:1", "batch": 2, "seq": 8,
			"adapters": 2, "adapter_rank": 4, "losses": "cross_entropy,gradient"}))
		for _, i := range adapters {
			number := must2(trainer.Add(tessera.Options{"rank": 2 + i, "seed": i}))
			numbers = append(numbers, number)
			must2(trainer.ForwardBackward(number, batch(1+2*i), "cross_entropy", tessera.Options{"scale": 0.1}))
			must2(trainer.Update(number, tessera.Options{"lr": 0.01}))
			must2(trainer.ForwardBackward(number, batch(1+2*i), "cross_entropy", nil))
		}
		byAdapter := map[int64][]float64{}
		for {
			pass := must2(trainer.Next(ctx))
			if pass == nil {
				break
			}
			check(t, pass.Err)
			if pass.Kind != "update" {
				wanted(t, "logprobs", len(pass.Logprobs)%8, 0)
				byAdapter[pass.Adapter] = append(byAdapter[pass.Adapter], pass.Loss)
			}
		}
		for _, number := range numbers {
			found = append(found, byAdapter[number]...)
		}
		return found, trainer, numbers
	}
	first, _, _ := losses(0)
	second2, _, _ := losses(1)
	together, trainer, numbers := losses(0, 1)
	wanted(t, "losses", fmt.Sprint(together), fmt.Sprint(append(first, second2...)))
	refused(t, second(trainer.Add(nil)), tessera.ErrBusy, "2 slots")
	folder := filepath.Join(t.TempDir(), "adapter")
	refused(t, trainer.Save(numbers[0], folder), tessera.ErrFailedPrecondition, "update")
	must2(trainer.Update(numbers[0], nil))
	must2(trainer.Next(ctx))
	check(t, trainer.Save(numbers[0], folder))
	check(t, trainer.Drop(numbers[1]))
	bare := must2(trainer.Load(folder, tessera.Options{"optimizer": 0}))
	adapters := strings.Split(must2(trainer.Report()), `"trainer"`)[0]
	wanted(t, "a step without the optimizer", strings.Contains(adapters, `"step":0`), true)
	b := batch(1)
	b.Weights = []float32{3e38, 3e38, 3e38, 3e38, 3e38, 3e38, 3e38, 3e38}
	must2(trainer.ForwardBackward(bare, b, "cross_entropy", nil))
	wanted(t, "a loss that is no f32 is not a number", math.IsNaN(must2(trainer.Next(ctx)).Loss), true)
	must2(trainer.Forward(bare, b))
	wanted(t, "no loss", must2(trainer.Next(ctx)).Loss, 0.0)
	check(t, trainer.Drop(bare))
	again := must2(trainer.Load(folder, nil))
	pass := must2(trainer.Backward(again, batch(1), make([]float32, 8)))
	wanted(t, "pass", must2(trainer.Next(ctx)).Number, pass)
	check(t, trainer.CancelPass(must2(trainer.Forward(again, batch(1)))))
	must2(trainer.Model(again))
	wanted(t, "report", strings.Contains(must2(trainer.Report()), `"slots":2`), true)
	trainer.Cancel()
	trainer.Close()
}

package api_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"tessera.dev/tessera"
)

// linear is y = x w, with a loss.
func linear(t *testing.T) *tessera.Graph {
	t.Helper()
	graph := must2(tessera.NewGraph())
	rows := must2(graph.Symbol("B", 0))
	x := must2(graph.Input("x", tessera.F32, rows, 2))
	check(t, graph.Scope("layer"))
	w := must2(graph.Parameter("w", tessera.F32, 2, 3))
	y := must2(graph.Node("matmul", nil, x, w))
	check(t, graph.Rename(y, "product"))
	check(t, graph.Output("y", y))
	square := must2(graph.Node("square", nil, y))
	loss := must2(graph.Node("reduce_mean", tessera.Options{"axes": []int64{0, 1}}, square))
	check(t, graph.Output("loss", loss))
	return graph
}

func Test_graphs_are_built_printed_parsed_and_transformed(t *testing.T) {
	graph := linear(t)
	product := must2(graph.Find("product"))
	dtype, dims, err := graph.Type(product)
	check(t, err)
	wanted(t, "type", fmt.Sprint(dtype, len(dims), dims[0] < 0, dims[1]), "f32 2 true 3")
	text := must2(graph.Print())
	again := must2(tessera.ParseGraph(text))
	wanted(t, "printed and parsed", must2(again.Print()), text)
	wanted(t, "training", strings.Contains(must2(must2(graph.Training(tessera.Options{"optimizer": "sgd"})).Print()), "output grad_norm"), true)
	wanted(t, "evaluation", strings.Contains(must2(must2(graph.Evaluation()).Print()), "output y"), false)
	check(t, graph.SetTrainable(must2(graph.Find("w")), false))
	wanted(t, "profile", strings.Contains(must2(graph.Profile(tessera.Options{"batch": 4})), `"flops"`), true)

	language := must2(newModel(t).Graph())
	wanted(t, "labels", strings.Contains(must2(must2(language.TokenLoss()).Print()), "input labels"), true)
	wanted(t, "caches", strings.Contains(must2(must2(language.Decoding(tessera.Options{"context": 32})).Print()), "state"), true)
	must2(language.Segments())

	refused(t, second(graph.Node("matmull", nil)), tessera.ErrNotFound, "matmul")
	refused(t, second(graph.Node("matmul", nil, product, product)), tessera.ErrInvalidArgument, "inner extents differ")
	refused(t, second(graph.Node("square", tessera.Options{"axes": []int{1}}, product)), tessera.ErrInvalidArgument, "axes")
	refused(t, second(graph.Find("nothing")), tessera.ErrNotFound, "nothing")
	refused(t, second(graph.Input("a\x00b", tessera.F32)), tessera.ErrInvalidArgument, "NUL")
	refused(t, second(tessera.ParseGraph("graph {\n nonsense\n}")), tessera.ErrInvalidArgument, "line 2")
	refused(t, second((*tessera.Graph)(nil).Print()), tessera.ErrInvalidArgument, "graph")
}

func Test_programs_of_own_graphs_run_in_sessions(t *testing.T) {
	r := newRuntime(t)
	devices := must2(tessera.OpenDevices(r, "cpu:2"))
	wanted(t, "devices", devices.Count(), 2)
	wanted(t, "devices", strings.Contains(must2(devices.Info()), `"text":"cpu:2"`), true)
	graph := must2(linear(t).Evaluation())
	forward := linear(t)
	plan := must2(tessera.NewPlanForGraph(devices, graph, tessera.Options{"batch": 2}))
	path := filepath.Join(t.TempDir(), "plan")
	check(t, plan.Save(path))
	text := must2(plan.Text())
	wanted(t, "loaded", must2(must2(tessera.LoadPlan(devices, graph, path)).Text()), text)
	wanted(t, "parsed", must2(must2(tessera.ParsePlan(devices, graph, text)).Text()), text)
	refused(t, second(tessera.ParsePlan(devices, graph, "nonsense")), tessera.ErrInvalidArgument, "")
	refused(t, second(tessera.LoadPlan(devices, graph, path+"x")), tessera.ErrNotFound, "planx")

	forwardPlan := must2(tessera.NewPlanForGraph(devices, forward, tessera.Options{"batch": 2}))
	program := must2(tessera.NewProgram(devices, tessera.Entry{Name: "loss", Graph: graph, Plan: plan},
		tessera.Entry{Name: "forward", Graph: forward, Plan: forwardPlan}))
	wanted(t, "entries", strings.Contains(must2(program.Info()), `"name":"forward"`), true)
	wanted(t, "instructions", strings.Contains(must2(program.Print(0)), "matmul"), true)
	refused(t, second(tessera.NewProgram(devices, tessera.Entry{Name: "loss", Graph: graph})), tessera.ErrInvalidArgument, "plan")
	refused(t, second(tessera.NewProgram(devices)), tessera.ErrInvalidArgument, "")

	session := must2(tessera.NewSession(program, tessera.Options{"trace": true}))
	w := must2(tessera.TensorOf([]float32{1, 2, 3, 4, 5, 6}, 2, 3))
	check(t, session.Write("w", w))
	wanted(t, "parameter", fmt.Sprint(must2(tessera.Values[float32](must2(session.Read("w"))))), "[1 2 3 4 5 6]")
	refused(t, second(session.Fetch("forward", "y")), tessera.ErrFailedPrecondition, "")
	x := must2(tessera.TensorOf([]float32{1, 0, 0, 1}, 2, 2))
	check(t, session.Feed("forward", "x", x))
	check(t, session.Run("forward"))
	y := must2(session.Fetch("forward", "y"))
	wanted(t, "result", y.String()+fmt.Sprint(must2(tessera.Values[float32](y))), "f32[2, 3][1 2 3 4 5 6]")
	check(t, session.Feed("loss", "x", x))
	check(t, session.RunContext(context.Background(), "loss"))
	wanted(t, "loss", fmt.Sprint(must2(tessera.Values[float32](must2(session.Fetch("loss", "loss"))))), fmt.Sprint([]float32{91.0 / 6}))
	wanted(t, "trace", strings.HasPrefix(must2(session.Trace()), "["), true)
	wanted(t, "report", strings.Contains(must2(session.Report()), "arena_bytes"), true)
	check(t, session.WriteModel(must2(tessera.NewModelFromGraph(forward, nil))))

	refused(t, session.Feed("forward", "x", w), tessera.ErrInvalidArgument, "")
	refused(t, session.Feed("forward", "x", nil), tessera.ErrInvalidArgument, "value")
	refused(t, session.Run("nothing"), tessera.ErrNotFound, "nothing")
	ended, end := context.WithCancel(context.Background())
	end()
	wanted(t, "an ended context", errors.Is(session.RunContext(ended, "forward"), context.Canceled), true)
	session.Cancel()
	check(t, session.Restore())
	session.Close()
	refused(t, session.Run("forward"), tessera.ErrInvalidArgument, "session")
}

func Test_plans_explain_themselves_and_estimates_are_checked(t *testing.T) {
	r, model := newRuntime(t), newModel(t)
	plan := must2(tessera.NewPlan(r, model, tessera.Options{"devices": "cpu:2", "trace": true, "parallel": "dp=2"}))
	wanted(t, "info", strings.Contains(must2(plan.Info()), `"strategy":"dp=2`), true)
	wanted(t, "explanation", strings.Contains(must2(plan.Explain()), `"memory_bytes"`), true)
	wanted(t, "page", strings.Contains(must2(plan.Page()), "<html"), true)
	wanted(t, "trace", strings.HasPrefix(must2(plan.Trace()), "["), true)
	refused(t, second(must2(tessera.NewPlan(r, model, nil)).Trace()), tessera.ErrFailedPrecondition, "trace")
	refused(t, second(tessera.NewPlan(r, model, tessera.Options{"memory_limit": "1KiB"})), tessera.ErrOutOfMemory, "")
	refused(t, second(tessera.NewPlan(r, nil, nil)), tessera.ErrInvalidArgument, "model")
	refused(t, second(tessera.NewPlan(nil, model, nil)), tessera.ErrInvalidArgument, "runtime")
	ended, end := context.WithTimeout(context.Background(), time.Nanosecond)
	defer end()
	<-ended.Done()
	wanted(t, "an ended context", errors.Is(second(tessera.NewPlanContext(ended, r, model, nil, nil)), context.DeadlineExceeded), true)

	options := tessera.Options{"cluster": "dgx-h100:8", "batch": 64, "certificate": true}
	estimate := must2(tessera.EstimatePlan("gpt2:L=12,C=768,H=12,V=50257,T=1024", options))
	wanted(t, "estimate", strings.Contains(estimate, `"predicted_step_seconds"`), true)
	delete(options, "certificate")
	wanted(t, "page", strings.Contains(must2(tessera.EstimatePlanPage("gpt2:L=12,C=768,H=12,V=50257,T=1024", options)), "<html"), true)
	wanted(t, "certificate", strings.Contains(must2(tessera.CheckPlan(certificate(t, estimate))), `"valid":true`), true)
	refused(t, second(tessera.CheckPlan("{}")), tessera.ErrCorrupt, "")
}

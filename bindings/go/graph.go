package tessera

import "tessera.dev/tessera/raw"

// Graph is a model as a graph of ops (docs/reference/ops.md lists them), built node by node or read from text. Each
// node is checked when it is added.
type Graph handle

// Value is a tensor of one graph.
type Value uint32

func newGraph(h *handle, err error) (*Graph, error) { return (*Graph)(h), err }

// NewGraph is an empty graph.
func NewGraph() (*Graph, error) { return newGraph(hold(raw.Tsr_graph_free, raw.Tsr_graph_new)) }

// ParseGraph reads the text form.
func ParseGraph(text string) (*Graph, error) {
	return newGraph(hold(raw.Tsr_graph_free, func(out *uintptr) uintptr { return raw.Tsr_graph_parse(text, out) }))
}

// Close frees it; see the package.
func (g *Graph) Close() { (*handle)(g).close() }

// Print is the text form, which ParseGraph reads.
func (g *Graph) Print() (string, error) { return (*handle)(g).text(raw.Tsr_graph_print) }

// Symbol declares a symbol, or finds it again: what stands for its extent in dims. capacity is its largest value, 0 for
// no limit. "B" is the batch, "T" the sequence.
func (g *Graph) Symbol(name string, capacity int64) (extent int64, err error) {
	if err := noNUL("symbol", name); err != nil {
		return 0, err
	}
	err = (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_graph_symbol(c, name, capacity, &extent) })
	return extent, err
}

// Input adds what is fed.
func (g *Graph) Input(name string, dtype DType, dims ...int64) (Value, error) {
	return g.value(name, func(c uintptr, out *uint32) uintptr {
		return raw.Tsr_graph_input(c, name, int(dtype), dims, out)
	})
}

// Parameter adds what trains.
func (g *Graph) Parameter(name string, dtype DType, dims ...int64) (Value, error) {
	return g.value(name, func(c uintptr, out *uint32) uintptr {
		return raw.Tsr_graph_parameter(c, name, int(dtype), dims, out)
	})
}

// Find is the value of a name.
func (g *Graph) Find(name string) (Value, error) {
	return g.value(name, func(c uintptr, out *uint32) uintptr { return raw.Tsr_graph_find(c, name, out) })
}

func (g *Graph) value(name string, ask func(c uintptr, out *uint32) uintptr) (Value, error) {
	if err := noNUL("name", name); err != nil {
		return 0, err
	}
	var found uint32
	err := (*handle)(g).call(func(c uintptr) uintptr { return ask(c, &found) })
	return Value(found), err
}

// Nodes adds a node: op by name, attributes, inputs; all its results.
func (g *Graph) Nodes(op string, attributes Options, inputs ...Value) ([]Value, error) {
	if err := noNUL("op", op); err != nil {
		return nil, err
	}
	c, done := (*handle)(g).use()
	defer done()
	given := make([]uint32, len(inputs))
	for i, input := range inputs {
		given[i] = uint32(input)
	}
	var made [64]uint32 // more than any op has
	var count uint64
	err := attributes.with(func(o uintptr) uintptr { return raw.Tsr_graph_node(c, op, given, o, made[:], &count) })
	if err != nil {
		return nil, err
	}
	values := make([]Value, count)
	for i := range values {
		values[i] = Value(made[i])
	}
	return values, nil
}

// Node is Nodes for ops with one result, or whose first alone matters.
func (g *Graph) Node(op string, attributes Options, inputs ...Value) (Value, error) {
	values, err := g.Nodes(op, attributes, inputs...)
	if err != nil || len(values) == 0 {
		return 0, err
	}
	return values[0], nil
}

// Scope names the nodes that are added from here on: "block.0.attention".
func (g *Graph) Scope(scope string) error {
	if err := noNUL("scope", scope); err != nil {
		return err
	}
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_graph_scope(c, scope) })
}

// Rename gives a value another name.
func (g *Graph) Rename(value Value, name string) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_graph_rename(c, uint(value), name) })
}

// SetTrainable freezes a parameter, or lets it train.
func (g *Graph) SetTrainable(parameter Value, trainable bool) error {
	number := 0
	if trainable {
		number = 1
	}
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_graph_set_trainable(c, uint(parameter), number) })
}

// Output makes a value fetchable under name.
func (g *Graph) Output(name string, value Value) error {
	if err := noNUL("name", name); err != nil {
		return err
	}
	return (*handle)(g).call(func(c uintptr) uintptr { return raw.Tsr_graph_output(c, name, uint(value)) })
}

const maxRank = 6 // TSR_MAX_RANK

// Type is the type of a value; symbols in dims are negative, as Symbol returned them.
func (g *Graph) Type(value Value) (dtype DType, dims []int64, err error) {
	var element, rank int32
	var extents [maxRank]int64
	err = (*handle)(g).call(func(c uintptr) uintptr {
		return raw.Tsr_graph_type(c, uint(value), &element, &rank, &extents[0])
	})
	if err != nil {
		return 0, nil, err
	}
	return DType(element), extents[:rank:rank], nil
}

// TokenLoss is the graph with the inputs "labels" and "loss_scale" and the output "loss", of one with "logits".
func (g *Graph) TokenLoss() (*Graph, error) {
	return newGraph((*handle)(g).hold(raw.Tsr_graph_free, raw.Tsr_graph_token_loss))
}

// Segments is the graph with the input "segments", which tells padding from text.
func (g *Graph) Segments() (*Graph, error) {
	return newGraph((*handle)(g).hold(raw.Tsr_graph_free, raw.Tsr_graph_segments))
}

// Evaluation is the graph with the output "loss" alone.
func (g *Graph) Evaluation() (*Graph, error) {
	return newGraph((*handle)(g).hold(raw.Tsr_graph_free, raw.Tsr_graph_evaluation))
}

// Training is a whole training step of a graph with the output "loss". Options: optimizer and its own, clip_norm,
// loss_scaling, loss_scaling_interval.
func (g *Graph) Training(options Options) (*Graph, error) {
	return newGraph((*handle)(g).holdWith(raw.Tsr_graph_free, options, raw.Tsr_graph_training))
}

// Decoding is one step of a language model over sequences whose keys and values are in pages. Options: context, which is
// needed; rows, page_size, pages, sample.
func (g *Graph) Decoding(options Options) (*Graph, error) {
	return newGraph((*handle)(g).holdWith(raw.Tsr_graph_free, options, raw.Tsr_graph_decoding))
}

// Profile is JSON: what the graph computes, reads, writes and keeps. Options: batch, symbols, nodes.
func (g *Graph) Profile(options Options) (string, error) {
	c, done := (*handle)(g).use()
	defer done()
	return textWith(options, func(o uintptr, out *uintptr) uintptr { return raw.Tsr_graph_profile(c, o, out) })
}

/* A model of one's own: a small network built node by node, trained on two devices to tell the quadrants of a plane
 * apart (sign of x * y), which no linear model can.
 *
 *   own_model [DEVICES]
 */
#include <stdio.h>
#include <stdlib.h>
#include <tessera/tessera.h>

enum { kBatch = 64, kHidden = 32, kSteps = 300 };

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  tsr_status_free(status);
  exit(1);
}

static tsr_value node(tsr_graph* graph, const char* op, tsr_value a, tsr_value b, int count, const tsr_options* attrs) {
  const tsr_value inputs[2] = {a, b};
  tsr_value out = 0;
  check(tsr_graph_node(graph, op, inputs, (size_t)count, attrs, &out, 1, NULL));
  return out;
}

/* loss = loss_scale * sum over the batch of (w2 tanh(w1 x + b1) - y)^2; B, the batch, is bound when training. */
static tsr_graph* build(void) {
  tsr_graph* graph = NULL;
  int64_t batch = 0;
  tsr_value x, y, scale, w1, b1, w2;
  check(tsr_graph_new(&graph));
  check(tsr_graph_symbol(graph, "B", 0, &batch));
  check(tsr_graph_input(graph, "x", TSR_F32, 2, (int64_t[]){batch, 2}, &x));
  check(tsr_graph_input(graph, "y", TSR_F32, 2, (int64_t[]){batch, 1}, &y));
  check(tsr_graph_input(graph, "loss_scale", TSR_F32, 0, NULL, &scale)); /* the trainer feeds 1 / batch */
  check(tsr_graph_parameter(graph, "w1", TSR_F32, 2, (int64_t[]){2, kHidden}, &w1));
  check(tsr_graph_parameter(graph, "b1", TSR_F32, 1, (int64_t[]){kHidden}, &b1));
  check(tsr_graph_parameter(graph, "w2", TSR_F32, 2, (int64_t[]){kHidden, 1}, &w2));

  tsr_value h = node(graph, "matmul", x, w1, 2, NULL);
  h = node(graph, "add_bias", h, b1, 2, NULL);
  h = node(graph, "tanh", h, 0, 1, NULL);
  const tsr_value out = node(graph, "matmul", h, w2, 2, NULL);
  const tsr_value square = node(graph, "square", node(graph, "sub", out, y, 2, NULL), 0, 1, NULL);
  tsr_options* axes = NULL;
  check(tsr_options_new(&axes));
  check(tsr_options_set_i64_list(axes, "axes", (int64_t[]){0, 1}, 2));
  const tsr_value sum = node(graph, "reduce_sum", square, 0, 1, axes);
  tsr_options_free(axes);
  check(tsr_graph_output(graph, "out", out));
  check(tsr_graph_output(graph, "loss", node(graph, "scale_by", sum, scale, 2, NULL)));
  return graph;
}

/* Points of the square [-1, 1)^2, the same on every machine. */
static float next_coordinate(void) {
  static uint32_t state = 1;
  state = state * 1664525u + 1013904223u;
  return (float)(state >> 8) / (float)(1 << 23) - 1;
}

int main(int argc, char** argv) {
  check(tsr_version_check(TSR_VERSION));
  tsr_runtime* runtime = NULL;
  tsr_model* model = NULL;
  tsr_options* options = NULL;
  tsr_trainer* trainer = NULL;
  tsr_tensor *x = NULL, *y = NULL;

  tsr_graph* graph = build();
  check(tsr_runtime_new(NULL, &runtime));
  check(tsr_model_new_from_graph(graph, NULL, &model));
  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "devices", argc > 1 ? argv[1] : "cpu:2"));
  check(tsr_options_set_i64(options, "batch", kBatch));
  check(tsr_options_set_f64(options, "lr", 0.02));
  check(tsr_trainer_new(runtime, model, NULL, options, &trainer));

  check(tsr_tensor_new(TSR_F32, 2, (int64_t[]){kBatch, 2}, &x));
  check(tsr_tensor_new(TSR_F32, 2, (int64_t[]){kBatch, 1}, &y));
  float* points = tsr_tensor_writable(x);
  float* signs = tsr_tensor_writable(y);
  double first = 0, last = 0;
  for (int i = 0; i < kSteps; ++i) {
    for (int row = 0; row < kBatch; ++row) {
      points[2 * row] = next_coordinate();
      points[2 * row + 1] = next_coordinate();
      signs[row] = points[2 * row] * points[2 * row + 1] > 0 ? 1.0f : -1.0f;
    }
    check(tsr_trainer_feed(trainer, "x", x));
    check(tsr_trainer_feed(trainer, "y", y));
    tsr_step step = {.struct_size = sizeof step};
    check(tsr_trainer_step(trainer, &step));
    if (i == 0) first = step.loss;
    last = step.loss;
    if (i % 50 == 0) printf("step %d loss %.4f\n", i + 1, step.loss);
  }
  printf("loss from %.4f to %.4f\n", first, last);
  check(tsr_trainer_store(trainer, model)); /* model now holds the trained w1, b1, w2 */

  tsr_tensor_free(x);
  tsr_tensor_free(y);
  tsr_trainer_free(trainer);
  tsr_options_free(options);
  tsr_model_free(model);
  tsr_runtime_free(runtime);
  tsr_graph_free(graph);
  return last < first / 2 ? 0 : 1;
}

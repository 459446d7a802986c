/* backend PLUGIN_FOLDER: a graph runs on the devices of samples/backend, a plugin that was built outside of the tree; and what it
 * cannot do is refused by its own message. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tessera/tessera.h>

static void check(tsr_status* status) {
  if (status == NULL) return;
  fprintf(stderr, "%s: %s\n", tsr_code_name(tsr_status_code(status)), tsr_status_message(status));
  exit(1);
}

static tsr_graph* graph_of(const char* op) {
  char text[256];
  tsr_graph* graph = NULL;
  snprintf(text, sizeof text, "graph {\n  input x: f32[4]\n  y = %s(x) : f32[4]\n  output y = y\n}", op);
  check(tsr_graph_parse(text, TSR_TEXT_END, &graph));
  return graph;
}

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  tsr_options* options = NULL;
  tsr_runtime* runtime = NULL;
  tsr_devices* devices = NULL;
  tsr_plan* plan = NULL;
  tsr_program* program = NULL;
  tsr_session* session = NULL;
  tsr_tensor *x = NULL, *y = NULL;
  const int64_t dims[1] = {4};
  const float values[4] = {-1, 2, -3, 4}, wanted[4] = {0, 2, 0, 4};
  check(tsr_options_new(&options));
  check(tsr_options_set_str(options, "plugin_path", argv[1]));
  check(tsr_runtime_new(options, &runtime));
  check(tsr_devices_open(runtime, "sample:1", &devices));
  tsr_graph* graph = graph_of("relu");
  check(tsr_plan_new_for_graph(devices, graph, NULL, &plan));
  const tsr_entry entry = {.struct_size = sizeof entry, .name = "run", .graph = graph, .plan = plan};
  check(tsr_program_new(devices, &entry, 1, &program));
  check(tsr_session_new(program, NULL, &session));
  check(tsr_tensor_borrow(TSR_F32, 1, dims, values, sizeof values, NULL, NULL, &x));
  check(tsr_session_feed(session, "run", "x", x));
  check(tsr_session_run(session, "run"));
  check(tsr_session_fetch(session, "run", "y", &y));
  if (memcmp(tsr_tensor_data(y), wanted, sizeof wanted) != 0) return 1;

  tsr_graph* other = graph_of("gelu");
  tsr_plan* none = NULL;
  tsr_status* refused = tsr_plan_new_for_graph(devices, other, NULL, &none);
  if (refused == NULL || strstr(tsr_status_message(refused), "sample: found op 'gelu', wanted relu of f32") == NULL) {
    fprintf(stderr, "gelu: %s\n", tsr_status_message(refused));
    return 1;
  }
  tsr_status_free(refused);
  tsr_tensor_free(x);
  tsr_tensor_free(y);
  tsr_session_free(session);
  tsr_program_free(program);
  tsr_plan_free(plan);
  tsr_graph_free(graph);
  tsr_graph_free(other);
  tsr_devices_free(devices);
  tsr_runtime_free(runtime);
  tsr_options_free(options);
  return 0;
}

// tsr_program, tsr_session.
#include "capi/guard.h"
#include "capi/handles.h"
#include "capi/public_structs.h"
#include "engine/program/entry_plans.h"
#include "engine/program/kernel_times.h"
#include "engine/program/report.h"
#include "graph/base/text.h"

using namespace tessera;
using namespace tessera::capi;

namespace {
const Runtime& runtime_of(const tsr_session* session) { return *session->value->prepared()->runtime; }
}  // namespace

tsr_status* tsr_program_new(const tsr_devices* devices, const tsr_entry* entries, size_t entry_count,
                            tsr_program** out_program) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{devices, "devices"}, {entries, "entries"}, {out_program, "out_program"}}));
    const CancelScope scope(devices->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(devices->runtime->check_process());
    std::vector<PlannedEntry> planned;
    // The caller's struct may be longer than ours, or shorter.
    const auto* at = reinterpret_cast<const char*>(entries);
    for (size_t i = 0; i < entry_count; ++i) {
      TSR_ASSIGN_OR_RETURN(const tsr_entry entry, copy_struct<tsr_entry>(at));
      TSR_RETURN_IF_ERROR(
          required({{entry.name, "entry.name"}, {entry.graph, "entry.graph"}, {entry.plan, "entry.plan"}}));
      const Plan& plan = entry.plan->value->entries[0].plan;
      Result<Graph> graph = graph_of_plan(plan, entry.graph->value);
      if (!graph.ok()) return graph.status().with_context(format("entry '{}'", entry.name));
      planned.push_back({entry.name, std::make_shared<const Graph>(std::move(graph).value()), plan});
      at += entry.struct_size;
    }
    TSR_ASSIGN_OR_RETURN(CompiledProgram compiled, compile_entries(std::move(planned), *devices->value));
    TSR_ASSIGN_OR_RETURN(auto prepared, prepare(devices->runtime, devices->value, std::move(compiled)));
    *out_program = new tsr_program{std::move(prepared)};
    return {};
  });
}

tsr_status* tsr_program_info(const tsr_program* program, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{program, "program"}, {out_text, "out_text"}}));
    const LoadedProgram& prepared = *program->value;
    return give_text(program_json(prepared.executable->program(), *prepared.devices), out_text);
  });
}

tsr_status* tsr_program_print(const tsr_program* program, int32_t rank, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{program, "program"}, {out_text, "out_text"}}));
    const Program& lowered = program->value->executable->program();
    if (rank < 0 || static_cast<size_t>(rank) >= lowered.ranks.size())
      return Status(StatusCode::kInvalidArgument,
                    format("rank {}, the program has {}", rank, lowered.ranks.size()));
    return give_text(print(lowered.ranks[static_cast<size_t>(rank)]), out_text);
  });
}

void tsr_program_free(tsr_program* program) {
  if (program && program->value->runtime->in_creating_process()) delete program;
}

tsr_status* tsr_session_new(const tsr_program* program, const tsr_options* options,
                            tsr_session** out_session) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{program, "program"}, {out_session, "out_session"}}));
    const Options none;
    OptionReader reader(options ? options->value : none, "session");
    const SessionOptions chosen{.measure_memory = reader.flag("measure_memory", false),
                                .trace = reader.flag("trace", false),
                                .file_folder = reader.text("offload_folder"),
                                .host_memory_limit = reader.bytes("host_memory_limit", 0),
                                .watchdog_s = reader.f64("watchdog", 0, 0, 1e9)};
    TSR_RETURN_IF_ERROR(reader.finish());
    TSR_ASSIGN_OR_RETURN(auto running, ProgramRunner::create(program->value, chosen));
    *out_session = new tsr_session{std::move(running)};
    return {};
  });
}

tsr_status* tsr_session_write(tsr_session* session, const char* name, const tsr_tensor* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {name, "name"}, {value, "value"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return session->value->session().write(name, value->value);
  });
}

tsr_status* tsr_session_read(const tsr_session* session, const char* name, tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {name, "name"}, {out_tensor, "out_tensor"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    TSR_ASSIGN_OR_RETURN(HostTensor value, session->value->session().read(name));
    *out_tensor = new tsr_tensor{std::move(value), nullptr, name};
    return {};
  });
}

tsr_status* tsr_session_write_model(tsr_session* session, const tsr_model* model) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {model, "model"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return session->value->write_parameters(*model->value, model->value->seed());
  });
}

tsr_status* tsr_session_feed(tsr_session* session, const char* entry, const char* input,
                             const tsr_tensor* value) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{session, "session"}, {entry, "entry"}, {input, "input"}, {value, "value"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return session->value->feed(entry, input, value->value);
  });
}

tsr_status* tsr_session_run(tsr_session* session, const char* entry) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {entry, "entry"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return session->value->run(entry);
  });
}

tsr_status* tsr_session_fetch(const tsr_session* session, const char* entry, const char* output,
                              tsr_tensor** out_tensor) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{session, "session"}, {entry, "entry"}, {output, "output"}, {out_tensor, "out_tensor"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    TSR_ASSIGN_OR_RETURN(HostTensor value, session->value->session().fetch(entry, output));
    *out_tensor = new tsr_tensor{std::move(value), nullptr, output};
    return {};
  });
}

void tsr_session_cancel(tsr_session* session) {
  if (session && runtime_of(session).in_creating_process()) session->value->cancel();
}

tsr_status* tsr_session_restore(tsr_session* session) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return session->value->restore();
  });
}

tsr_status* tsr_session_report(const tsr_session* session, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    Session& running = session->value->session();
    return give_text(session_json(running.memory(), running.communication(), running.allocations()),
                     out_text);
  });
}

tsr_status* tsr_session_take_trace(tsr_session* session, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{session, "session"}, {out_text, "out_text"}}));
    TSR_RETURN_IF_ERROR(runtime_of(session).check_process());
    return give_text(session->value->trace_json(), out_text);
  });
}

void tsr_session_free(tsr_session* session) {
  if (session && runtime_of(session).in_creating_process()) delete session;
}

tsr_status* tsr_trace_kernels(const char* text, size_t size, const tsr_options* options,
                              tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{text, "text"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string times,
                         kernel_times_json(text_of(text, size), options ? options->value : Options{}));
    return give_text(std::move(times), out_text);
  });
}

// tsr_plan.
#include "capi/engine/certificate.h"
#include "capi/engine/estimate.h"
#include "capi/engine/explain.h"
#include "capi/engine/report.h"
#include "capi/guard.h"
#include "capi/handles.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_plan_new(tsr_runtime* runtime, tsr_model* model, const tsr_options* options,
                         tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_plan, "out_plan"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(auto record,
                         plan_model(*runtime->value, *model->value, options ? options->value : Options{}));
    *out_plan = new tsr_plan{std::move(record)};
    return {};
  });
}

tsr_status* tsr_plan_new_for_graph(tsr_devices* devices, tsr_graph* graph, const tsr_options* options,
                                   tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{devices, "devices"}, {graph, "graph"}, {out_plan, "out_plan"}}));
    const CancelScope scope(devices->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(devices->runtime->check_process());
    TSR_ASSIGN_OR_RETURN(auto record,
                         plan_graph(*devices->value, graph->value, options ? options->value : Options{}));
    *out_plan = new tsr_plan{std::move(record)};
    return {};
  });
}

tsr_status* tsr_plan_text(const tsr_plan* plan, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}}));
    return put_text(plan_text(*plan->value), buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_info(const tsr_plan* plan, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}}));
    return put_text(plan_json(*plan->value), buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_trace(const tsr_plan* plan, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}}));
    TSR_ASSIGN_OR_RETURN(const std::string trace, predicted_trace_json(*plan->value));
    return put_text(trace, buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_save(const tsr_plan* plan, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {path, "path"}}));
    return save_plan_text(*plan->value, path);
  });
}

tsr_status* tsr_plan_load_for_graph(tsr_devices* devices, tsr_graph* graph, const char* path,
                                    tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{devices, "devices"}, {graph, "graph"}, {path, "path"}, {out_plan, "out_plan"}}));
    const CancelScope scope(devices->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(devices->runtime->check_process());
    TSR_ASSIGN_OR_RETURN(auto record, load_graph_plan(*devices->value, graph->value, path));
    *out_plan = new tsr_plan{std::move(record)};
    return {};
  });
}

tsr_status* tsr_plan_parse_for_graph(tsr_devices* devices, tsr_graph* graph, const char* text, size_t size,
                                     tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(
        required({{devices, "devices"}, {graph, "graph"}, {text, "text"}, {out_plan, "out_plan"}}));
    const CancelScope scope(devices->runtime->cancel_signal());
    TSR_RETURN_IF_ERROR(devices->runtime->check_process());
    TSR_ASSIGN_OR_RETURN(auto record, parse_graph_plan(*devices->value, graph->value, text_of(text, size)));
    *out_plan = new tsr_plan{std::move(record)};
    return {};
  });
}

tsr_status* tsr_plan_explain(const tsr_plan* plan, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}}));
    TSR_ASSIGN_OR_RETURN(const std::string json, plan_explanation_json(*plan->value));
    return put_text(json, buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_page(const tsr_plan* plan, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}}));
    TSR_ASSIGN_OR_RETURN(const std::string page, plan_page(*plan->value));
    return put_text(page, buffer, capacity, out_size);
  });
}

void tsr_plan_free(tsr_plan* plan) { delete plan; }

tsr_status* tsr_plan_estimate(const char* description, const tsr_options* options, char* buffer,
                              size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{description, "description"}}));
    const Options given = options ? options->value : Options{};
    TSR_ASSIGN_OR_RETURN(const std::string report, wants_generation(given)
                                                       ? estimate_generation(description, given)
                                                       : estimate_step(description, given));
    return put_text(report, buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_check(const char* certificate, char* buffer, size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{certificate, "certificate"}}));
    TSR_ASSIGN_OR_RETURN(const std::string report, check_certificate_text(certificate));
    return put_text(report, buffer, capacity, out_size);
  });
}

tsr_status* tsr_plan_estimate_page(const char* description, const tsr_options* options, char* buffer,
                                   size_t capacity, size_t* out_size) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{description, "description"}}));
    const Options given = options ? options->value : Options{};
    TSR_ASSIGN_OR_RETURN(const std::string page, wants_generation(given)
                                                     ? estimate_generation_page(description, given)
                                                     : estimate_page(description, given));
    return put_text(page, buffer, capacity, out_size);
  });
}

// tsr_plan.
#include <utility>

#include "capi/guard.h"
#include "capi/work.h"
#include "engine/planning/certificate.h"
#include "engine/planning/estimate.h"
#include "engine/planning/joint_plan.h"
#include "engine/planning/memory_needs.h"
#include "engine/planning/method.h"
#include "engine/program/explain.h"
#include "engine/program/report.h"

using namespace tessera;
using namespace tessera::capi;

tsr_status* tsr_plan_new(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
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

tsr_status* tsr_plan_methods(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                             const tsr_options* options, const tsr_options* adapters, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_text, "out_text"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    TSR_ASSIGN_OR_RETURN(
        std::string report,
        plan_methods(*runtime->value, model->value, dataset ? dataset->value.get() : nullptr,
                     options ? options->value : Options{}, adapters ? adapters->value : Options{}));
    return give_text(std::move(report), out_text);
  });
}

tsr_status* tsr_plan_jointly(tsr_runtime* runtime, const tsr_model* model, const tsr_dataset* dataset,
                             const tsr_options* trainer, const tsr_options* engine, const tsr_options* options,
                             tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_text, "out_text"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    const auto chosen = [](const tsr_options* given) { return given ? given->value : Options{}; };
    TSR_ASSIGN_OR_RETURN(std::string report,
                         plan_jointly(*runtime->value, *model->value, dataset ? dataset->value.get() : nullptr,
                                      chosen(trainer), chosen(engine), chosen(options)));
    return give_text(std::move(report), out_text);
  });
}

tsr_status* tsr_plan_new_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                   const tsr_options* options, tsr_plan** out_plan) {
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

tsr_status* tsr_plan_begin(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                           tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_work, "out_work"}}));
    TSR_RETURN_IF_ERROR(runtime->value->check_process());
    const auto plan = [with = runtime->value, of = model->value,
                       chosen = options ? options->value : Options{}] {
      return plan_model(*with, *of, chosen);
    };
    return give_work(out_work, std::make_unique<Planning>("planning", runtime->value, plan));
  });
}

tsr_status* tsr_plan_begin_for_graph(const tsr_devices* devices, const tsr_graph* graph,
                                     const tsr_options* options, tsr_work** out_work) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{devices, "devices"}, {graph, "graph"}, {out_work, "out_work"}}));
    TSR_RETURN_IF_ERROR(devices->runtime->check_process());
    const auto plan = [with = *devices, of = graph->value, chosen = options ? options->value : Options{}] {
      return plan_graph(*with.value, of, chosen);
    };
    return give_work(out_work, std::make_unique<Planning>("planning", devices->runtime, plan));
  });
}

tsr_status* tsr_plan_finish(tsr_work* work, tsr_plan** out_plan) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{work, "work"}, {out_plan, "out_plan"}}));
    TSR_ASSIGN_OR_RETURN(auto record, finish_work<Planning>(work));
    *out_plan = new tsr_plan{std::move(record)};
    return {};
  });
}

tsr_status* tsr_plan_text(const tsr_plan* plan, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {out_text, "out_text"}}));
    return give_text(plan_text(*plan->value), out_text);
  });
}

tsr_status* tsr_plan_info(const tsr_plan* plan, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {out_text, "out_text"}}));
    return give_text(plan_json(*plan->value), out_text);
  });
}

tsr_status* tsr_plan_trace(const tsr_plan* plan, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string trace, predicted_trace_json(*plan->value));
    return give_text(std::move(trace), out_text);
  });
}

tsr_status* tsr_plan_save(const tsr_plan* plan, const char* path) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {path, "path"}}));
    return save_plan_text(*plan->value, path);
  });
}

tsr_status* tsr_plan_load_for_graph(const tsr_devices* devices, const tsr_graph* graph, const char* path,
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

tsr_status* tsr_plan_parse_for_graph(const tsr_devices* devices, const tsr_graph* graph, const char* text,
                                     size_t size, tsr_plan** out_plan) {
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

tsr_status* tsr_plan_explain(const tsr_plan* plan, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string json, plan_explanation_json(*plan->value));
    return give_text(std::move(json), out_text);
  });
}

tsr_status* tsr_plan_page(const tsr_plan* plan, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{plan, "plan"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string page, plan_page(*plan->value));
    return give_text(std::move(page), out_text);
  });
}

void tsr_plan_free(tsr_plan* plan) { delete plan; }

tsr_status* tsr_plan_estimate(const char* description, const tsr_options* options, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{description, "description"}, {out_text, "out_text"}}));
    const Options given = options ? options->value : Options{};
    TSR_ASSIGN_OR_RETURN(std::string report, wants_generation(given) ? estimate_generation(description, given)
                                                                     : estimate_step(description, given));
    return give_text(std::move(report), out_text);
  });
}

tsr_status* tsr_plan_check(const char* certificate, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{certificate, "certificate"}, {out_text, "out_text"}}));
    TSR_ASSIGN_OR_RETURN(std::string report, check_certificate_text(certificate));
    return give_text(std::move(report), out_text);
  });
}

tsr_status* tsr_plan_estimate_page(const char* description, const tsr_options* options, tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{description, "description"}, {out_text, "out_text"}}));
    const Options given = options ? options->value : Options{};
    TSR_ASSIGN_OR_RETURN(std::string page, wants_generation(given)
                                               ? estimate_generation_page(description, given)
                                               : estimate_page(description, given));
    return give_text(std::move(page), out_text);
  });
}

tsr_status* tsr_model_needs(tsr_runtime* runtime, const tsr_model* model, const tsr_options* options,
                            tsr_text** out_text) {
  return guard([&]() -> Status {
    TSR_RETURN_IF_ERROR(required({{runtime, "runtime"}, {model, "model"}, {out_text, "out_text"}}));
    const CancelScope scope(runtime->value->cancel_signal());
    TSR_ASSIGN_OR_RETURN(std::string needs, memory_needs_json(*runtime->value, *model->value,
                                                              options ? options->value : Options{}));
    return give_text(std::move(needs), out_text);
  });
}

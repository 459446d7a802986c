// RequestRun: a file of requests, many of them computed at once by an engine, and a file of results. One thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "engine/inference/request_file.h"
#include "engine/inference/result_file.h"
#include "engine/serving/replicas/engine.h"

namespace tessera {

class RequestRun {
 public:
  // Opens both files, and checks all lines. Options: adapters, ids, json_schema, regex, grammar (tessera.h).
  static Result<std::unique_ptr<RequestRun>> open(const std::string& path, const std::string& out,
                                                  const Options& options);
  // Creates the engine, with room for the adapters that lines name, and loads these.
  Status start(std::shared_ptr<Runtime> runtime, std::shared_ptr<SharedModel> model, Options options);
  // Computes for a moment; returns the done share. At 1 the results are in their file.
  Result<double> step();
  std::string report_json() const;
  Runtime* runtime() const { return engine_ == nullptr ? nullptr : &engine_->runtime(); }

 private:
  // A text of a request, as far as it is generated.
  struct Text {
    std::string text;
    std::vector<int32_t> ids;
    Json logprobs, end;
    ServingEvent::Finish finish = ServingEvent::Finish::kNone;
  };
  struct InProgress {
    int64_t line = 0;
    Json id, prompt_logprobs;
    std::vector<Text> texts;
    size_t ended = 0;
  };
  struct Adapter {
    std::string path, place;  // and the place of its first use
    int64_t number = -1;
  };

  Status find_adapters(const SharedModel& model, int64_t& rank);
  bool has_room() const;
  Result<bool> submit_next();
  Result<int64_t> submit(RequestRow& row);
  Status take(const ServingEvent& event);
  Status take_token(const ServingEvent& event, const std::string& details, Text& text);
  Json text_json(Text& text, std::string& error) const;
  Status finish(InProgress& request);
  Status put(int64_t line, const Json& result, const std::string& error);

  std::unique_ptr<RequestFile> requests_;
  std::string out_;
  std::unique_ptr<ResultFile> results_;        // of the process that has the requests
  std::map<std::string, std::string> named_;  // paths of adapters
  Options allowed_;                           // for requests without a constraint
  bool ids_ = false;
  std::unique_ptr<Engine> engine_;
  std::vector<Adapter> adapters_;
  std::map<std::string, size_t> adapter_of_;   // by the lines' values
  std::map<int64_t, InProgress> in_progress_;  // by the engine's numbers, which grow with the lines
  int64_t submitted_ = 0;                      // the last line
  int64_t done_ = 0, failed_ = 0, tokens_ = 0, prompt_tokens_ = 0, cached_tokens_ = 0;
  bool is_finished_ = false;
  std::string first_failure_;
  std::chrono::steady_clock::time_point begin_;
  double seconds_ = 0;
};

}  // namespace tessera

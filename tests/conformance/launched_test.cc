// The forms of processes_test.cc over the processes of MPI; under mpirun (tests/processes/check.sh).
#include <doctest/doctest.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "graph/base/text.h"
#include "runtime/backend_registry.h"
#include "runtime/transport_plugin.h"
#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"
#include "tests/conformance/process_jobs.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

int64_t bytes_sent(const Outcome& outcome) {
  int64_t bytes = 0;
  for (const CommReport& report : outcome.sent) bytes += report.bytes;
  return bytes;
}

// TESSERA_MIXTURES: "COUNT:SEED" of random mixtures; without it every form.
std::vector<Form> chosen_forms() {
  const char* drawn = std::getenv("TESSERA_MIXTURES");
  std::vector<Form> chosen;
  if (drawn != nullptr) {
    const std::vector<std::string> parts = split(drawn, ':');
    return mixtures(std::atoi(parts.at(0).c_str()), static_cast<uint32_t>(std::atoi(parts.at(1).c_str())));
  }
  for (const Form& form : forms())
    if (form.always || full()) chosen.push_back(form);
  return chosen;
}

}  // namespace

TEST_SUITE("on request") {
  // The first process trains the same plan alone, and compares to the bit.
  TEST_CASE("forms over launched processes have the bits of one") {
    BackendRegistry registry{RegistryOptions{}};
    const char* folder = std::getenv("TESSERA_PLUGIN_PATH");
    const auto api = load_transport(folder != nullptr ? folder : "", "mpi", registry.host());
    REQUIRE_MESSAGE(api.ok(), api.status().to_string());
    const auto transport = Transport::open(**api, registry.host(), {}).value();
    const auto channel = Channel::open(transport).value();
    const int32_t processes = transport->processes();
    REQUIRE(processes > 1);
    int compared = 0, left_out = 0;
    for (const Form& form : chosen_forms()) {
      if (form.devices < processes) {
        ++left_out;
        continue;
      }
      CAPTURE(form.words);
      const Job job = process_job(form);
      Outcome several = run_in_world(job, form.words, transport);
      CHECK_MESSAGE(several.ok(), several.error);
      const int64_t bytes = bytes_sent(several);
      std::vector<int64_t> of_each(static_cast<size_t>(processes));
      REQUIRE(channel->gather(std::as_bytes(std::span(&bytes, 1)), std::as_writable_bytes(std::span(of_each))).ok());
      if (transport->process() > 0) continue;
      const Outcome one = run(job, form.words);
      int64_t of_all = 0;
      for (const int64_t each : of_each) of_all += each;
      CHECK(of_all == bytes_sent(one));
      several.sent = one.sent;
      CHECK(difference_of(one, several) == "");
      ++compared;
    }
    if (transport->process() == 0) {
      std::printf("processes | %d | %d forms have the bits of one process, %d of fewer devices left out\n", processes, compared, left_out);
      CHECK(compared > 0);
    }
  }
}

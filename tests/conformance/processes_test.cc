// Every form of parallelism between processes, which are threads here: the bits and the bytes of the same plan in one process.
#include <doctest/doctest.h>

#include "tests/conformance/parity_forms.h"
#include "tests/conformance/parity_harness.h"
#include "tests/conformance/process_jobs.h"

using namespace tessera;
using namespace tessera::parity;

namespace {

void check_processes(const Form& form, int32_t processes) {
  CAPTURE(form.words);
  CAPTURE(processes);
  Job job = process_job(form);
  const Outcome one = run(job, form.words);
  REQUIRE_MESSAGE(one.ok(), one.error);
  job.processes = processes;
  const Outcome several = run(job, form.words);
  CHECK(difference_of(one, several) == "");
  CHECK(several.allocations_after_first_step == 0);
  REQUIRE(several.memory.size() == one.memory.size());
  for (size_t rank = 0; rank < one.memory.size(); ++rank) {
    CHECK(several.memory[rank].predicted_bytes == one.memory[rank].predicted_bytes);
    CHECK(several.memory[rank].measured_bytes == several.memory[rank].predicted_bytes);
  }
}

}  // namespace

TEST_SUITE("parity processes") {
  TEST_CASE("every form in four processes has the bits of one") {
    for (const Form& form : forms())
      if (form.always || full()) check_processes(form, 4);
  }
  TEST_CASE("forms in two, three and eight processes have the bits of one") {
    for (const int32_t processes : {2, 3, 8})
      for (const Form& form : mixtures(full() ? 12 : 3, static_cast<uint32_t>(processes))) check_processes(form, processes);
  }
  TEST_CASE("random mixtures in two to four processes have the bits of one") {
    const std::vector<Form> drawn = mixtures(full() ? 300 : 6, 2026);
    for (size_t i = 0; i < drawn.size(); ++i) check_processes(drawn[i], 2 + static_cast<int32_t>(i % 3));
  }
}

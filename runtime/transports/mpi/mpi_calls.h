// Calls of MPI with their errors as a Status, and waits that can be ended.
#pragma once

#define OMPI_SKIP_MPICXX 1
#include <mpi.h>

#include <functional>
#include <string_view>
#include <vector>

#include "graph/base/result.h"

namespace tessera::mpi {

// kInternal with MPI's own text.
Status check(int code, std::string_view what);

// Requests: messages that are posted together, and waited for together.
class Requests {
 public:
  Requests() = default;
  ~Requests() { give_up(); }  // of messages that were not waited for, after an error
  Requests(const Requests&) = delete;
  Requests& operator=(const Requests&) = delete;

  // More than MPI counts in one message is sent in several.
  Status send(const void* data, int64_t bytes, int process, int tag, MPI_Comm comm);
  Status receive(void* data, int64_t bytes, int process, int tag, MPI_Comm comm);
  // Until all are done, or `ended` gives an error, which is returned; messages of that time are given up. Polls for a moment, then sleeps
  // between polls.
  Status wait(const std::function<Status()>& ended);

 private:
  void give_up();

  std::vector<MPI_Request> requests_;
};

}  // namespace tessera::mpi

#include "runtime/transports/mpi/mpi_calls.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <thread>

#include "graph/base/text.h"
#include "graph/base/waiting.h"

namespace tessera::mpi {

namespace {

constexpr int64_t kMostBytes = int64_t{1} << 30;
using Clock = std::chrono::steady_clock;

}  // namespace

Status check(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return {};
  char text[MPI_MAX_ERROR_STRING] = {};
  int length = 0;
  MPI_Error_string(code, text, &length);
  return Status(StatusCode::kInternal, format("{}: {}", what, std::string_view(text, static_cast<size_t>(length))));
}

Status Requests::send(const void* data, int64_t bytes, int process, int tag, MPI_Comm comm) {
  for (int64_t at = 0; at == 0 || at < bytes; at += kMostBytes) {
    const auto count = static_cast<int>(std::min(kMostBytes, bytes - at));
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    TSR_RETURN_IF_ERROR(
        check(MPI_Isend(static_cast<const std::byte*>(data) + at, count, MPI_BYTE, process, tag, comm, &request), "MPI_Isend"));
  }
  return {};
}

Status Requests::receive(void* data, int64_t bytes, int process, int tag, MPI_Comm comm) {
  for (int64_t at = 0; at == 0 || at < bytes; at += kMostBytes) {
    const auto count = static_cast<int>(std::min(kMostBytes, bytes - at));
    MPI_Request& request = requests_.emplace_back(MPI_REQUEST_NULL);
    TSR_RETURN_IF_ERROR(
        check(MPI_Irecv(static_cast<std::byte*>(data) + at, count, MPI_BYTE, process, tag, comm, &request), "MPI_Irecv"));
  }
  return {};
}

Status Requests::wait(const std::function<Status()>& ended) {
  constexpr auto kBusy = std::chrono::microseconds(200);  // most waits between processes that compute alike are shorter
  constexpr auto kLongestSleep = std::chrono::microseconds(200);
  const auto begun = Clock::now();
  auto sleep = std::chrono::microseconds(5);
  for (int polls = 0;; ++polls) {
    int done = 0;
    const Status status = check(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE), "MPI_Testall");
    if (done != 0 && status.ok()) break;
    const Status end = status.ok() ? ended() : status;
    if (!end.ok()) {
      give_up();
      return end;
    }
    if (polls % 64 != 63) {
      pause_core();
    } else if (Clock::now() - begun < kBusy) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(sleep);
      sleep = std::min<std::chrono::microseconds>(sleep * 2, kLongestSleep);
    }
  }
  requests_.clear();
  return {};
}

// A receive that nobody has begun to fill is cancelled; the others write to their memory for a moment at most, for which this waits.
void Requests::give_up() {
  if (requests_.empty()) return;
  constexpr auto kPatience = std::chrono::milliseconds(500);
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) (void)MPI_Cancel(&request);
  const auto until = Clock::now() + kPatience;
  int done = 0;
  while (MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE) == MPI_SUCCESS && done == 0 &&
         Clock::now() < until)
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  for (MPI_Request& request : requests_)
    if (request != MPI_REQUEST_NULL) (void)MPI_Request_free(&request);
  requests_.clear();
}

}  // namespace tessera::mpi

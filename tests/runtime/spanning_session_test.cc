// Sessions whose ranks live in several processes, which are threads here.
#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <thread>

#include "graph/base/text.h"
#include "program_builder.h"
#include "runtime/session.h"
#include "test_devices.h"
#include "tests/thread_world.h"

namespace tessera {
namespace {

using test::ThreadWorld;

HostTensor values(Shape shape, float first) {
  std::vector<float> data(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < data.size(); ++i) data[i] = first + static_cast<float>(i) * 0.25f;
  return HostTensor::copy_of<float>({DType::kF32, shape}, data);
}

// The data-parallel program's session of one process with one device.
struct Part {
  Part(BackendRegistry& registry, const std::shared_ptr<Transport>& transport, const SessionOptions& options = {}, int64_t rows = 5) {
    devices = DeviceSet::open(registry, "cpu:1", {}, transport).value();
    Program program = test::data_parallel_program(*devices, rows);
    const RankSet here = devices->ranks();
    program.ranks = {program.ranks[static_cast<size_t>(here.first)]};
    program.first = here.first;
    program.after = here.world - here.first - here.count;
    session = Session::create(Executable::prepare(devices, std::move(program)).value(), options).value();
    CHECK(session->write("w", values({4, 3}, 1)).ok());
    CHECK(session->feed("step", "x", values({rows, 4}, -2)).ok());
  }
  std::shared_ptr<DeviceSet> devices;
  std::unique_ptr<Session> session;
};

TEST_CASE("processes fetch what others hold, in any rows, and one may lead") {
  BackendRegistry registry(test::cpu_options(2));
  std::array<std::vector<float>, 4> found;  // the last: of one process
  const auto floats = [](const HostTensor& tensor) { return std::vector<float>(tensor.as<float>().begin(), tensor.as<float>().end()); };
  const auto run = [&](Session& session) {
    REQUIRE(session.run("step").ok());
    std::vector<float> all = floats(session.fetch("step", "y").value());  // its rows lie in all processes
    for (const float value : floats(session.read("count").value())) all.push_back(value);
    return all;
  };
  {
    const auto devices = DeviceSet::open(registry, "cpu:3").value();
    const auto session = Session::create(Executable::prepare(devices, test::data_parallel_program(*devices, 5)).value()).value();
    REQUIRE(session->write("w", values({4, 3}, 1)).ok());
    REQUIRE(session->feed("step", "x", values({5, 4}, -2)).ok());
    found[3] = run(*session);
  }
  std::array<std::string, 3> led;
  ThreadWorld::run(3, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    const auto process = static_cast<size_t>(transport->process());
    Part part(registry, transport);
    CHECK(part.devices->size() == 3);
    CHECK(part.devices->device_name(transport->process()) == format("cpu:0 of process {}", transport->process()));
    found[process] = run(*part.session);
    led[process] = part.session->lead([&]() -> Result<std::string> {
                           CHECK(process == 0);
                           return format("{}", part.session->read("w")->as<float>()[11]);
                         }).value();
    const auto refused = part.session->lead([]() -> Result<std::string> { return Status(StatusCode::kIo, "no room"); });
    CHECK(refused.status().to_string() == Status(StatusCode::kIo, "no room").to_string());
  });
  for (size_t process = 0; process < 3; ++process) {
    CHECK(found[process] == found[3]);
    CHECK(led[process] == "3.75");
  }
}

TEST_CASE("calls of a session that is led are made by all, after an error too") {
  BackendRegistry registry(test::cpu_options(2));
  const auto floats = [](const HostTensor& tensor) { return std::vector<float>(tensor.as<float>().begin(), tensor.as<float>().end()); };
  const auto use = [&](Session& session) {
    std::vector<float> all;
    const auto add = [&](const HostTensor& tensor) {
      for (const float value : floats(tensor)) all.push_back(value);
    };
    for (const float first : {1.0f, 7.0f}) {
      REQUIRE(session.feed("step", "x", values({5, 4}, first)).ok());
      REQUIRE(session.run("step").ok());
      add(session.fetch("step", "y").value());
    }
    REQUIRE(session.write("w", values({4, 3}, 3)).ok());
    REQUIRE(session.run("step").ok());
    add(session.fetch("step", "y").value());
    add(session.read("count").value());
    REQUIRE(session.zero_state().ok());
    REQUIRE(session.run("step").ok());
    add(session.read("count").value());
    return all;
  };
  std::vector<float> wanted, found;
  {
    const auto devices = DeviceSet::open(registry, "cpu:3").value();
    const auto session = Session::create(Executable::prepare(devices, test::data_parallel_program(*devices, 5)).value()).value();
    REQUIRE(session->write("w", values({4, 3}, 1)).ok());
    wanted = use(*session);
  }
  ThreadWorld::run(3, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    Part part(registry, transport);
    REQUIRE(part.session->begin_lead().ok());
    CHECK(part.session->types(SlotKind::kParameter).contains("w"));
    CHECK(part.session->find_input("step", "x") != nullptr);
    CHECK(part.session->is_led() == (transport->process() > 0));
    if (part.session->is_led()) {
      CHECK(part.session->follow().to_string() == Status().to_string());
      return;
    }
    found = use(*part.session);
    part.session->end_world(Status(StatusCode::kIo, "an end"));
    const Status failed = part.session->run("step");
    CHECK_MESSAGE(failed.to_string().find("an end") != std::string::npos, failed.to_string());
    REQUIRE(part.session->restore().ok());
    REQUIRE(part.session->write("w", values({4, 3}, 1)).ok());
    CHECK(use(*part.session) == wanted);
    part.session = nullptr;  // the others end
  });
  CHECK(found == wanted);
}

TEST_CASE("processes with programs of different plans are told before they run") {
  BackendRegistry registry(test::cpu_options(2));
  ThreadWorld::run(2, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    const auto devices = DeviceSet::open(registry, "cpu:1", {}, transport).value();
    Program program = test::data_parallel_program(*devices, 5);
    program.ranks = {program.ranks[static_cast<size_t>(devices->ranks().first)]};
    program.first = devices->ranks().first, program.after = 1 - program.first;
    program.plan_fingerprint = transport->process() == 0 ? 7 : 8;
    const auto session = Session::create(Executable::prepare(devices, std::move(program)).value());
    CHECK(session.status().message().find("process 1 has the plan 8") != std::string_view::npos);
  });
}

// One process begins its run late. The others wait for it as long as it does something.
Status waits_for_late(bool is_active, double watchdog_s) {
  BackendRegistry registry(test::cpu_options(2));
  std::array<Status, 2> statuses;
  ThreadWorld::run(2, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    Part part(registry, transport, {.watchdog_s = watchdog_s});
    if (transport->process() == 1)
      for (int i = 0; i < 60; ++i) {
        if (is_active) transport->note_activity();
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      }
    statuses[static_cast<size_t>(transport->process())] = part.session->run("step");
  });
  return statuses[0];
}

TEST_CASE("a rank that waits for one that computes in another process has not stalled, and one that waits for nothing has") {
  CHECK(waits_for_late(true, 0.15).ok());
  CHECK(waits_for_late(false, 0.15).code() == StatusCode::kTimeout);
}

TEST_CASE("an error of one process is the error of all, and they go on after it together") {
  BackendRegistry registry(test::cpu_options(2));
  ThreadWorld::run(2, registry.host(), [&](const std::shared_ptr<Transport>& transport) {
    Part part(registry, transport);
    CHECK(part.session->run("step").ok());
    if (transport->process() == 1) {
      part.session->end_world(Status(StatusCode::kIo, "the disk of process 1 is full"));
    } else {
      const Status failed = part.session->run("step");
      CHECK(failed.code() == StatusCode::kIo);
      CHECK(failed.message().find("the disk of process 1 is full") != std::string_view::npos);
    }
    CHECK(part.session->restore().ok());
    CHECK(part.session->write("w", values({4, 3}, 1)).ok());
    CHECK(part.session->run("step").ok());
  });
}

}  // namespace
}  // namespace tessera

#include "runtime/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "graph/base/thread.h"
#include "graph/base/waiting.h"

namespace tessera {

namespace {

// PoolJob: one parallel_for at a time. Its memory outlives it, so that a late worker finds an
// atomic, not a caller's stack: a worker counts itself in (`helpers`), then checks that the job
// is open; the caller closes it, then waits until no helper is left. Only then is it reused.
struct alignas(64) PoolJob {
  std::atomic<bool> is_taken{false};  // by a caller
  std::atomic<bool> is_open{false};   // tasks may be left to claim
  WaitWord helpers{0};
  // Written by the caller while the job is closed and has no helpers.
  int64_t tasks = 0;
  ThreadPool::Body body = nullptr;
  void* context = nullptr;
  std::atomic<int> core{-1};  // the caller's when it posted
  std::exception_ptr error;  // of the thread that set `has_failed`
  alignas(64) std::atomic<int64_t> next{0};
  std::atomic<bool> has_failed{false};
};

// Moves the calling thread off `core` if it may run elsewhere, without
// pinning it. A system with few cores wakes a worker on its caller's core,
// and leaves it queued there for milliseconds while another core is idle.
void leave_core(int core) {
  if (core < 0 || core >= CPU_SETSIZE || sched_getcpu() != core) return;
  cpu_set_t all, others;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  (void)sched_setaffinity(0, sizeof all, &all);
}

// Polls `done()` for some microseconds, which covers a program's
// next launch, then as spin_until does; returns its last value.
template <class Done>
bool poll_until(Done&& done) {
  for (int i = 0; i < 512; ++i) {
    if (done()) return true;
    pause_core();
  }
  return spin_until(done);
}

// Counted: adds one to a counter while it exists.
class Counted {
 public:
  explicit Counted(std::atomic<int32_t>& count) : count_(count) {
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Counted() { count_.fetch_sub(1, std::memory_order_relaxed); }
  Counted(const Counted&) = delete;
  Counted& operator=(const Counted&) = delete;

 private:
  std::atomic<int32_t>& count_;
};

}  // namespace

struct ThreadPool::Impl {
  // one per thread; further callers get no helpers
  std::vector<PoolJob> jobs;
  WaitWord posted{0};                // counts jobs; idle workers wait on it
  std::atomic<int32_t> sleeping{0};  // workers that watch it asleep
  std::atomic<int32_t> busy{0};      // callers inside parallel_for and workers that help them
  std::atomic<bool> closing{false};
  pid_t pid = getpid();
  int32_t threads = 1;
  std::vector<Thread> workers;

  explicit Impl(int32_t count) : jobs(static_cast<size_t>(count)), threads(count) {}

  // Whether a helping worker should exit, once callers fill all cores: more threads than cores would only
  // take turns, and slow down every rank. Exactly the surplus threads exit.
  bool gives_way() {
    for (int32_t now = busy.load(std::memory_order_relaxed); now > threads;)
      if (busy.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) return true;
    return false;
  }

  // Runs tasks until none is left or, for a worker, it should exit; returns whether it did.
  bool run_tasks(PoolJob& job, bool is_worker) {
    for (;;) {
      if (is_worker && gives_way()) return true;
      const int64_t task = job.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= job.tasks) {
        if (job.is_open.load(std::memory_order_relaxed)) job.is_open.store(false, std::memory_order_relaxed);
        return false;
      }
      try {
        job.body(job.context, task);
      } catch (...) {
        job.next.store(job.tasks, std::memory_order_relaxed);
        if (!job.has_failed.exchange(true, std::memory_order_acq_rel)) job.error = std::current_exception();
        return false;
      }
    }
  }

  // A free job for the caller; null if all are taken.
  PoolJob* take_job() {
    for (PoolJob& job : jobs)
      if (!job.is_taken.load(std::memory_order_relaxed) &&
          !job.is_taken.exchange(true, std::memory_order_acquire))
        return &job;
    return nullptr;
  }

  void wake_workers(int64_t wanted) {
    const int32_t asleep = sleeping.load(std::memory_order_seq_cst);
    const int32_t idle = threads - busy.load(std::memory_order_relaxed);
    const int64_t count = std::min<int64_t>({wanted, asleep, std::max(0, idle)});
    if (count == threads - 1) return posted.notify_all();
    for (int64_t i = 0; i < count; ++i) posted.notify_one();
  }

  // Closes the job and waits for its helpers, except
  // in a forked child, where they do not exist.
  void finish(PoolJob& job) const {
    job.is_open.store(false, std::memory_order_seq_cst);
    for (int left; (left = job.helpers.load(std::memory_order_seq_cst)) != 0;) {
      if (poll_until([&] { return job.helpers.load(std::memory_order_acquire) == 0; })) return;
      if (pid != getpid()) return;
      left = job.helpers.load(std::memory_order_acquire);
      if (left != 0) job.helpers.wait(left, std::memory_order_acquire);
    }
  }

  struct Choice {
    PoolJob* job = nullptr;
    int32_t open = 0;
  };
  // Chooses an open job, fewest helpers first so that concurrent callers share the workers; none while callers
  // and their helpers already fill the cores.
  Choice choose() {
    Choice choice;
    if (busy.load(std::memory_order_relaxed) >= threads) return choice;
    int fewest = 0;
    for (PoolJob& job : jobs) {
      if (!job.is_open.load(std::memory_order_relaxed)) continue;
      ++choice.open;
      const int helpers = job.helpers.load(std::memory_order_relaxed);
      if (choice.job != nullptr && helpers >= fewest) continue;
      choice.job = &job;
      fewest = helpers;
    }
    return choice;
  }

  // Its move to another core comes before it counts itself in: on a busy machine it then waits there
  // for a time slice, and the caller must not wait with it.
  void help(PoolJob& job) {
    leave_core(job.core.load(std::memory_order_relaxed));
    job.helpers.fetch_add(1, std::memory_order_seq_cst);
    if (job.is_open.load(std::memory_order_seq_cst)) {
      busy.fetch_add(1, std::memory_order_relaxed);
      if (!run_tasks(job, true)) busy.fetch_sub(1, std::memory_order_relaxed);
    }
    if (job.helpers.fetch_sub(1, std::memory_order_seq_cst) == 1) job.helpers.notify_all();
  }

  void close() {
    closing.store(true);
    posted.fetch_add(1);
    posted.notify_all();
    workers.clear();  // joins
  }

  void work_loop() {
    bool has_cores = cpuset_size() >= threads, may_spin = false;
    for (;;) {
      const int seen = posted.load(std::memory_order_seq_cst);
      if (closing.load()) return;
      if (const Choice choice = choose(); choice.job != nullptr) {
        // A spinning worker takes a core from a rank when the ranks alone fill them.
        may_spin = has_cores && 2 * choice.open <= threads;
        help(*choice.job);
        continue;
      }
      if (may_spin && poll_until([&] { return posted.load(std::memory_order_relaxed) != seen; })) continue;
      may_spin = false;
      sleeping.fetch_add(1, std::memory_order_seq_cst);
      posted.wait(seen, std::memory_order_seq_cst);
      sleeping.fetch_sub(1, std::memory_order_relaxed);
      has_cores = cpuset_size() >= threads;  // the process may have been moved to fewer cores
    }
  }
};

int32_t ThreadPool::cpuset_size() {
  // CPU_SETSIZE covers 1024 processors; beyond that ask for a larger set.
  for (int32_t processors = CPU_SETSIZE; processors <= CPU_SETSIZE * 64; processors *= 4) {
    cpu_set_t* set = CPU_ALLOC(processors);
    if (set == nullptr) break;
    const size_t bytes = CPU_ALLOC_SIZE(processors);
    const int failed = sched_getaffinity(0, bytes, set);
    const int count = failed == 0 ? CPU_COUNT_S(bytes, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  return std::max<int32_t>(1, static_cast<int32_t>(std::thread::hardware_concurrency()));
}

ThreadPool::ThreadPool(int32_t threads, std::function<void(int32_t)> started)
    : impl_(std::make_unique<Impl>(threads > 0 ? threads : cpuset_size())) {
  impl_->workers.reserve(static_cast<size_t>(impl_->threads - 1));
  try {
    for (int32_t i = 1; i < impl_->threads; ++i)
      impl_->workers.emplace_back([impl = impl_.get(), started, i] {
        if (started) started(i);
        impl->work_loop();
      });
  } catch (...) {  // those already started wait for a notification
    impl_->close();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (impl_->pid != getpid()) {
    // In a forked child the workers do not exist; joining
    // them, or destroying what they wait on, would hang.
    (void)impl_.release();
    return;
  }
  impl_->close();
}

int32_t ThreadPool::thread_count() const { return impl_->threads; }

void ThreadPool::parallel_for(int64_t tasks, Body body, void* context) {
  if (tasks <= 0) return;
  Impl& impl = *impl_;
  const Counted counted(impl.busy);
  PoolJob* const job = tasks == 1 || impl.threads == 1 ? nullptr : impl.take_job();
  if (job == nullptr) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task);
    return;
  }
  job->tasks = tasks;
  job->body = body;
  job->context = context;
  job->core.store(sched_getcpu(), std::memory_order_relaxed);
  job->next.store(0, std::memory_order_relaxed);
  job->is_open.store(true, std::memory_order_seq_cst);
  impl.posted.fetch_add(1, std::memory_order_seq_cst);
  impl.wake_workers(tasks - 1);
  impl.run_tasks(*job, false);
  impl.finish(*job);
  std::exception_ptr error;
  if (job->has_failed.load(std::memory_order_relaxed)) {
    error = std::exchange(job->error, nullptr);
    job->has_failed.store(false, std::memory_order_relaxed);
  }
  job->is_taken.store(false, std::memory_order_release);
  if (error) std::rethrow_exception(error);
}

}  // namespace tessera

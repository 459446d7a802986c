#include "runtime/thread_pool.h"

#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "graph/base/thread.h"
#include "graph/base/waiting.h"

namespace tessera {

namespace {

// One parallel_for, on its caller's stack. It is listed in the pool while tasks may be left to claim; a
// worker counts itself in (`helpers`, under the pool's mutex) before it touches the job, and the caller
// leaves only when the job is unlisted and no helper is left.
struct Job {
  int64_t tasks = 0;
  int core = -1;  // where the caller was when it posted
  ThreadPool::Body body = nullptr;
  void* context = nullptr;
  std::atomic<int64_t> next{0};
  std::atomic<int32_t> helpers{0};  // changed under the pool's mutex
  std::condition_variable left;
  std::exception_ptr error;  // guarded by the pool's mutex
  Job* following = nullptr;
  Job* previous = nullptr;
};

// Moves the calling thread off `core` where it may run elsewhere, and leaves it free to go where it likes. A
// system with few cores, all lately in use, wakes a worker on the core of the caller that it is to help, and
// leaves it queued there for milliseconds while another core is idle.
void leave_core(int core) {
  if (core < 0 || core >= CPU_SETSIZE || sched_getcpu() != core) return;
  cpu_set_t all, others;
  if (sched_getaffinity(0, sizeof all, &all) != 0) return;
  others = all;
  CPU_CLR(core, &others);
  if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others) != 0) return;
  (void)sched_setaffinity(0, sizeof all, &all);
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
  std::mutex mutex;
  std::condition_variable work;
  Job* first = nullptr;
  int32_t sleeping = 0;
  bool closing = false;
  std::atomic<int32_t> posted{0};  // counts jobs; what an idle worker watches before it sleeps
  std::atomic<int32_t> busy{0};    // callers inside parallel_for and workers that help them
  pid_t pid = getpid();
  int32_t threads = 1;
  std::vector<Thread> workers;

  // Whether a helping worker should exit, once callers fill all cores: more threads than cores would only
  // take turns, and slow down every rank. Exactly the surplus threads exit.
  bool gives_way() {
    for (int32_t now = busy.load(std::memory_order_relaxed); now > threads;)
      if (busy.compare_exchange_weak(now, now - 1, std::memory_order_relaxed)) return true;
    return false;
  }

  // Runs tasks until none is left or, for a worker, it should exit; returns whether it did.
  bool run_tasks(Job& job, bool is_worker) {
    for (;;) {
      if (is_worker && gives_way()) return true;
      const int64_t task = job.next.fetch_add(1, std::memory_order_relaxed);
      if (task >= job.tasks) return false;
      try {
        job.body(job.context, task);
      } catch (...) {
        job.next.store(job.tasks, std::memory_order_relaxed);
        const std::lock_guard lock(mutex);
        if (!job.error) job.error = std::current_exception();
        return false;
      }
    }
  }

  void unlink(Job& job) {
    if (job.previous != nullptr) job.previous->following = job.following;
    if (job.following != nullptr) job.following->previous = job.previous;
    if (first == &job) first = job.following;
  }

  struct Choice {
    Job* job = nullptr;
    int32_t listed = 0;
  };
  // Chooses a listed job with tasks left, fewest helpers first so that concurrent callers share the workers;
  // none while callers and their helpers already fill the cores.
  Choice choose() const {
    Choice choice;
    if (busy.load(std::memory_order_relaxed) >= threads) return choice;
    for (Job* job = first; job != nullptr; job = job->following) {
      ++choice.listed;
      if (job->next.load(std::memory_order_relaxed) < job->tasks &&
          (choice.job == nullptr || job->helpers < choice.job->helpers))
        choice.job = job;
    }
    return choice;
  }

  void close() {
    {
      const std::lock_guard lock(mutex);
      closing = true;
    }
    work.notify_all();
    workers.clear();  // joins
  }

  void work_loop() {
    bool may_spin = false;
    std::unique_lock lock(mutex);
    for (;;) {
      if (const Choice choice = choose(); choice.job != nullptr) {
        // A spinning worker takes a core from a rank when the ranks alone fill them.
        may_spin = 2 * choice.listed <= threads;
        Job& job = *choice.job;
        ++job.helpers;
        busy.fetch_add(1, std::memory_order_relaxed);
        lock.unlock();
        leave_core(job.core);
        if (!run_tasks(job, true)) busy.fetch_sub(1, std::memory_order_relaxed);
        lock.lock();
        if (--job.helpers == 0) job.left.notify_one();
        continue;
      }
      if (closing) return;
      const int32_t seen = posted.load(std::memory_order_relaxed);
      if (may_spin) {
        may_spin = false;
        lock.unlock();
        spin_until([&] { return posted.load(std::memory_order_relaxed) != seen; });
        lock.lock();
        continue;
      }
      ++sleeping;
      work.wait(lock, [&] { return closing || posted.load(std::memory_order_relaxed) != seen; });
      --sleeping;
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

ThreadPool::ThreadPool(int32_t threads) : impl_(std::make_unique<Impl>()) {
  impl_->threads = threads > 0 ? threads : cpuset_size();
  impl_->workers.reserve(static_cast<size_t>(impl_->threads - 1));
  try {
    for (int32_t i = 1; i < impl_->threads; ++i)
      impl_->workers.emplace_back([impl = impl_.get()] { impl->work_loop(); });
  } catch (...) {  // those that there are wait to be told
    impl_->close();
    throw;
  }
}

ThreadPool::~ThreadPool() {
  if (impl_->pid != getpid()) {
    // A forked child: the workers do not exist here, and joining them or destroying what they wait on would
    // hang.
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
  if (tasks == 1 || impl.threads == 1 || impl.pid != getpid()) {
    for (int64_t task = 0; task < tasks; ++task) body(context, task);
    return;
  }
  Job job;
  job.tasks = tasks;
  job.body = body;
  job.context = context;
  job.core = sched_getcpu();
  int64_t wake = 0;
  {
    const std::lock_guard lock(impl.mutex);
    job.following = impl.first;
    if (impl.first != nullptr) impl.first->previous = &job;
    impl.first = &job;
    impl.posted.fetch_add(1, std::memory_order_relaxed);
    const int32_t idle = impl.threads - impl.busy.load(std::memory_order_relaxed);
    wake = std::min<int64_t>({tasks - 1, impl.sleeping, std::max(0, idle)});
  }
  if (wake == impl.threads - 1) {
    impl.work.notify_all();
  } else {
    for (int64_t i = 0; i < wake; ++i) impl.work.notify_one();
  }
  impl.run_tasks(job, false);
  {
    std::unique_lock lock(impl.mutex);
    impl.unlink(job);
    if (job.helpers.load(std::memory_order_relaxed) != 0) {
      lock.unlock();
      spin_until([&] { return job.helpers.load(std::memory_order_relaxed) == 0; });
      lock.lock();  // a helper lets go of the job under the mutex, so it is gone once this is held and none
                    // is left
      job.left.wait(lock, [&] { return job.helpers == 0; });
    }
  }
  if (job.error) std::rethrow_exception(job.error);
}

}  // namespace tessera

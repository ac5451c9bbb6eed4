#include "pool.h"

#include <pthread.h>
#include <signal.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>

namespace strobe {
namespace {

constexpr int64_t kMostThreads = 1024;

struct Call {
  const Work& work;
  int64_t jobs;
  std::atomic<int64_t> next = 0;
  int64_t helping = 0;  // threads of the pool that are at it; held by the pool's mutex
  std::condition_variable left = {};

  void help() {
    for (int64_t job; (job = next.fetch_add(1, std::memory_order_relaxed)) < jobs;) work(job);
  }
};

class Pool {
 public:
  void run(Call& call, int64_t helpers) {
    {
      std::lock_guard lock(mutex_);
      grow(helpers);
      try {
        wanted_.insert(wanted_.end(), static_cast<size_t>(helpers), &call);
      } catch (const std::bad_alloc&) {  // nobody is asked: the caller does it all
      }
    }
    for (int64_t helper = 0; helper < helpers; ++helper) come_.notify_one();
    call.help();
    std::unique_lock lock(mutex_);
    std::erase(wanted_, &call);  // nobody need come any more
    call.left.wait(lock, [&] { return call.helping == 0; });
  }

 private:
  void grow(int64_t threads) {
    sigset_t blocked, before;
    sigfillset(&blocked);
    for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) sigdelset(&blocked, fault);  // their own
    pthread_sigmask(SIG_SETMASK, &blocked, &before);
    try {
      for (; threads_ < threads; ++threads_) std::thread(&Pool::serve, this).detach();
    } catch (const std::system_error&) {  // no more threads to be had: those that are here do the work
    } catch (const std::bad_alloc&) {
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

  [[noreturn]] void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      come_.wait(lock, [&] { return !wanted_.empty(); });
      Call& call = *wanted_.front();
      wanted_.pop_front();
      ++call.helping;
      lock.unlock();
      call.help();
      lock.lock();
      if (--call.helping == 0) call.left.notify_one();  // under the lock: the call ends with its waiter
    }
  }

  std::mutex mutex_;
  std::condition_variable come_;
  std::deque<Call*> wanted_;  // a call once for each thread that may help it
  int64_t threads_ = 0;
};

// Never destroyed: threads wait in it until the process ends. A fork's child forgets it, for its threads are not there.
std::atomic<Pool*> pool = nullptr;
[[maybe_unused]] const int forgotten = pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });

// nullptr: there is no memory for one.
Pool* the_pool() {
  Pool* found = pool.load();
  if (found != nullptr) return found;
  try {
    auto made = std::make_unique<Pool>();
    if (pool.compare_exchange_strong(found, made.get())) found = made.release();
  } catch (const std::bad_alloc&) {
  }
  return found;
}

}  // namespace

void share(int64_t jobs, int64_t threads, const Work& work) noexcept {
  Call call{work, jobs};
  const int64_t helpers = std::min({threads, jobs, kMostThreads}) - 1;
  if (Pool* const shared = helpers > 0 ? the_pool() : nullptr)
    shared->run(call, helpers);
  else
    call.help();
}

}  // namespace strobe

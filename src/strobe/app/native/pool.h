// A pool of threads that lives as long as the process. It survives a fork: the child makes threads of its own.
//
//     parallel(jobs, threads, [&](int64_t job) noexcept { ... });
//
// calls work(0) ... work(jobs - 1), each once, on at most `threads` threads, and returns when all are done. The caller
// is one of the threads, so with threads = 1 no other is involved. Which thread does which job is left to chance.
// Work must not throw; it writes into its own slot what became of it. Several threads may call at once. Signals but
// those of a thread's own faults are left to the threads of others.

#pragma once

#include <cstdint>
#include <functional>

namespace strobe {

using Work = std::function<void(int64_t job)>;

void share(int64_t jobs, int64_t threads, const Work& work) noexcept;

template <class Function>
void parallel(int64_t jobs, int64_t threads, const Function& work) noexcept {
  share(jobs, threads, std::ref(work));  // takes no memory
}

}  // namespace strobe

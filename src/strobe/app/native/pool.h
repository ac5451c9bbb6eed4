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
#include <memory>

namespace strobe {

using Work = void (*)(void* context, int64_t job);

void parallel(int64_t jobs, int64_t threads, Work work, void* context) noexcept;

template <class Function>
void parallel(int64_t jobs, int64_t threads, Function&& work) noexcept {
  auto context = std::addressof(work);
  using Context = decltype(context);
  const Work call = [](void* given, int64_t job) { (*static_cast<Context>(given))(job); };
  parallel(jobs, threads, call, const_cast<void*>(static_cast<const void*>(context)));
}

}  // namespace strobe

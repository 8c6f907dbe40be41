// What else happens to a process while kernels run: it is forked, or somebody presses Ctrl-C.
#pragma once

#include <mutex>

namespace fedincentive {

// For state that outlives a call. fork() waits until it is free, so that a child never finds it held by a thread it
// does not have. Hold it shortly.
std::mutex& process_mutex();

// While alive, poll() in this thread calls `check` now and then; it throws when the work is to stop.
class Interruptible {
 public:
  explicit Interruptible(void (*check)());
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  void (*outer_)();
};

// To be called every few milliseconds of work, in any thread.
void poll();

}  // namespace fedincentive

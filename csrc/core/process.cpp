#include "process.hpp"

#include <pthread.h>

#include <chrono>

namespace fedincentive {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPatience{20};

std::mutex mutex;
const int registered = pthread_atfork([] { mutex.lock(); }, [] { mutex.unlock(); }, [] { mutex.unlock(); });

thread_local void (*checking)() = nullptr;
thread_local Clock::time_point last;

}  // namespace

std::mutex& process_mutex() {
  (void)registered;
  return mutex;
}

Interruptible::Interruptible(void (*check)()) : outer_(checking) {
  checking = check;
  last = Clock::now();
}

Interruptible::~Interruptible() { checking = outer_; }

void poll() {
  if (!checking) return;
  const Clock::time_point now = Clock::now();
  if (now - last < kPatience) return;
  last = now;
  checking();
}

}  // namespace fedincentive

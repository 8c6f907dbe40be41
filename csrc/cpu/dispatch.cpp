#include "dispatch.hpp"

#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "../core/process.hpp"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace fedincentive {

namespace scalar {
extern const Kernels kernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const Kernels kernels;
}
namespace avx512 {
extern const Kernels kernels;
}
#endif

namespace {

struct Unit {
  const Kernels* kernels;
  bool supported;
};

std::vector<Unit> units() {
  std::vector<Unit> result{{&scalar::kernels, true}};
#if defined(__x86_64__)
  __builtin_cpu_init();
  result.push_back({&avx2::kernels,
                    __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c") && __builtin_cpu_supports("fma")});
  result.push_back({&avx512::kernels, __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                                          __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl")});
#endif
  return result;
}

}  // namespace

std::vector<std::string> compiled_isas() {
  std::vector<std::string> names;
  for (const Unit& unit : units()) names.push_back(unit.kernels->name);
  return names;
}

std::vector<std::string> supported_isas() {
  std::vector<std::string> names;
  for (const Unit& unit : units())
    if (unit.supported) names.push_back(unit.kernels->name);
  return names;
}

const Kernels& kernels_of(const std::string& isa) {
  for (const Unit& unit : units())
    if (unit.supported && isa == unit.kernels->name) return *unit.kernels;
  throw std::invalid_argument("this CPU or build has no instruction set " + isa);
}

void run_parallel(int64_t items, int64_t threads, const std::function<void(int64_t, int64_t)>& task) {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&](int64_t worker) {
    const ExactSubnormals exact;
    try {
      for (int64_t item; (item = next.fetch_add(1)) < items;) {
        poll();
        task(worker, item);
      }
    } catch (...) {
      const std::lock_guard<std::mutex> lock(mutex);
      failure = std::current_exception();
      next.store(items);
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (int64_t worker = 1; worker < std::min(threads, items); ++worker) helpers.emplace_back(work, worker);
  } catch (const std::system_error&) {  // no more threads to be had: those there are do the work
  }
  work(0);
  for (std::thread& helper : helpers) helper.join();
  if (failure) std::rethrow_exception(failure);
}

#if defined(__x86_64__)
ExactSubnormals::ExactSubnormals() : saved_(_mm_getcsr()) { _mm_setcsr(saved_ & ~0x8040u); }  // FTZ and DAZ
ExactSubnormals::~ExactSubnormals() { _mm_setcsr(saved_); }
#else
ExactSubnormals::ExactSubnormals() : saved_(0) {}
ExactSubnormals::~ExactSubnormals() {}
#endif

}  // namespace fedincentive

// Which instruction sets were compiled in, which the CPU has, and how work is spread over threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "../core/types.hpp"

namespace fedincentive {

std::vector<std::string> compiled_isas();
std::vector<std::string> supported_isas();  // weakest first; "scalar" always

// The kernels of one supported instruction set; throws std::invalid_argument for another name.
const Kernels& kernels_of(const std::string& isa);

// Runs task(worker, item) for every item in [0, items) on at most `threads` threads, the calling one included.
// Items are handed out as threads come free; a task must not depend on which worker runs it. Exceptions are rethrown.
void run_parallel(int64_t items, int64_t threads, const std::function<void(int64_t, int64_t)>& task);

// While alive, subnormal numbers count in this thread even if the host program flushes them to zero.
class ExactSubnormals {
 public:
  ExactSubnormals();
  ~ExactSubnormals();
  ExactSubnormals(const ExactSubnormals&) = delete;
  ExactSubnormals& operator=(const ExactSubnormals&) = delete;

 private:
  unsigned saved_;
};

}  // namespace fedincentive

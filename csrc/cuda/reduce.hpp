// Weighted mean, trimmed mean, weighted trimmed mean and median on a CUDA device, coordinate by coordinate.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "../core/types.hpp"

namespace fedincentive {
namespace cuda {

// A call of the CUDA runtime that failed: what was tried, the error's name and its text.
struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
void check(cudaError_t status, const char* what);

// Runs `work` with a device current; says clearly when there is none. Another device than the caller's is made current
// in a thread of its own: making the caller's current again would create a context on it, if there was none.
void on_device(int device, const std::function<void()>& work);

// Segments are contiguous for every client (layouts are not looked at).
struct Request {
  Dtype dtype = Dtype::float32;
  bool wide_output = false;
  int64_t clients = 0;
  int64_t trim = 0;
  std::vector<Segment> segments;
  std::vector<double> weights;  // empty: all 1
  double divisor = 0;           // 0: the total weight of the kept clients

  int64_t result_size() const { return wide_output ? 8 : item_size(dtype); }
};

// What was unusual: coordinates that keep a non-finite value, the clients it came from, and coordinates whose kept
// clients have no weight.
struct Findings {
  int64_t not_finite = 0;
  int64_t weightless = 0;
  std::vector<bool> guilty;

  void add(const Findings& other);
};

// Device memory that a reduction needs besides inputs and outputs, in bytes.
int64_t workspace_size(const Request& request);

// A reduction of updates in device memory, enqueued on a stream when constructed: one or two kernels, however many
// arrays there are. The device must be current. `workspace` is workspace_size(request) bytes of its memory.
class Reduction {
 public:
  Reduction(const Request& request, cudaStream_t stream, void* workspace);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  Findings finish();  // waits for the stream

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same for updates in host memory, of any size: they go through two sets of buffers, each with a stream of its own,
// so that copies in both directions overlap with kernels. Small arrays are packed: no byte is copied twice.
class HostReduction {
 public:
  // `memory` bounds the device memory used, in bytes.
  HostReduction(const Request& request, int64_t memory);
  int64_t device_bytes() const;
  Findings run(void* device_memory) const;

 private:
  const Request& request_;
  int64_t buffer_, workspace_;  // bytes of a set's inputs and results, and of its workspace
};

// Device memory a reduction from the host takes if nobody bounds it: enough to hide latency, little beside a model's.
constexpr int64_t kHostMemory = int64_t{256} << 20;

// What the device can still give.
int64_t free_memory();

// Memory of the device that is current, given back at the end.
class DeviceMemory {
 public:
  explicit DeviceMemory(int64_t bytes);
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  void* get() const { return memory_; }

 private:
  void* memory_ = nullptr;
};

}  // namespace cuda
}  // namespace fedincentive

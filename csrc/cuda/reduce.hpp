// Weighted mean, trimmed mean, weighted trimmed mean and median on a CUDA device, coordinate by coordinate.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
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

// Makes a device current while alive; says clearly when there is none.
class OnDevice {
 public:
  explicit OnDevice(int device);
  ~OnDevice();
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int previous_ = 0;
};

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

// A reduction of updates in device memory, enqueued on a stream when constructed; the device must be current.
class Reduction {
 public:
  Reduction(const Request& request, cudaStream_t stream);
  ~Reduction();
  Reduction(const Reduction&) = delete;
  Reduction& operator=(const Reduction&) = delete;

  Findings finish();  // waits for the stream

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// The same for updates in host memory, of any size: pieces go through two sets of buffers, each with a stream of its
// own, so that copies in both directions overlap with kernels. `memory` bounds the device memory used, in bytes.
Findings reduce_from_host(const Request& request, int64_t memory);

// Device memory a reduction from the host takes if nobody bounds it: enough to hide latency, little beside a model's.
constexpr int64_t kHostMemory = int64_t{256} << 20;

}  // namespace cuda
}  // namespace fedincentive

#include <algorithm>
#include <cmath>
#include <cstring>
#include <exception>
#include <numeric>
#include <thread>

#include "launch.cuh"
#include "reduce.hpp"

namespace fedincentive {
namespace cuda {

namespace {

std::string version(int number) { return std::to_string(number / 1000) + "." + std::to_string(number % 1000 / 10); }

// The oldest Linux driver for each major version of the runtime (NVIDIA's CUDA compatibility guide).
std::string driver_needed() {
  int runtime = 0, driver = 0;
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&driver);
  const char* oldest = runtime >= 13000 ? "580" : "525";
  return ". These kernels were built with CUDA " + version(runtime) + ", which needs an NVIDIA driver " + oldest +
         " or later; " + (driver ? "the driver here knows CUDA " + version(driver) : "no driver is installed here") +
         ". Update it, or build the package with an older CUDA toolkit (CUDA_HOME)";
}

}  // namespace

void check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // or the next call would report it again
  throw Error(std::string(what) + " failed: " + cudaGetErrorString(status) + " (" + cudaGetErrorName(status) + ")" +
              (status == cudaErrorInsufficientDriver ? driver_needed() : ""));
}

void on_device(int device, const std::function<void()>& work) {
  int count = 0, current = 0;
  check(cudaGetDeviceCount(&count), "looking for CUDA devices");
  if (device < 0 || device >= count)
    throw Error("There is no CUDA device " + std::to_string(device) + "; this machine has " + std::to_string(count) +
                ".");
  check(cudaGetDevice(&current), "asking for the current CUDA device");
  const auto there = [&] {
    check(cudaSetDevice(device), "choosing the CUDA device");
    work();
  };
  if (current == device) return there();
  std::exception_ptr failure;
  std::thread([&] {
    try {
      there();
    } catch (...) {
      failure = std::current_exception();
    }
  }).join();
  if (failure) std::rethrow_exception(failure);
}

DeviceMemory::DeviceMemory(int64_t bytes) {
  check(cudaMalloc(&memory_, static_cast<size_t>(std::max<int64_t>(bytes, 1))), "allocating device memory");
}
DeviceMemory::~DeviceMemory() { cudaFree(memory_); }

int64_t free_memory() {
  size_t free = 0, total = 0;
  check(cudaMemGetInfo(&free, &total), "asking for free device memory");
  return static_cast<int64_t>(free);
}

void Findings::add(const Findings& other) {
  not_finite += other.not_finite;
  weightless += other.weightless;
  guilty.resize(std::max(guilty.size(), other.guilty.size()), false);
  for (size_t i = 0; i < other.guilty.size(); ++i) guilty[i] = guilty[i] || other.guilty[i];
}

namespace {

constexpr int64_t kAlign = 256;

int64_t aligned(int64_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

// Weights of pairs are multiplied so that they add up to at most this: products with the smallest float32 keep their
// bits, and those that overflow are taken again (see mean_of).
constexpr int kWeightExponent = 60;
constexpr int kWeightRange = 36;  // so small a part of the total keeps its bits too

// Where float32 pairs would not do: float64 results, and weights that differ by more than a pair can hold.
bool needs_doubles(const Request& request) {
  if (request.dtype == Dtype::float64 || request.wide_output) return true;
  double least = HUGE_VAL, total = 0;
  for (double weight : request.weights) {
    if (weight != 0) least = std::min(least, std::abs(weight));
    total += std::abs(weight);
  }
  return !request.weights.empty() && !(total > 0 && total < 1e300 && least >= std::ldexp(total, -kWeightRange));
}

// The power of two by which weights are multiplied.
double weight_unit(const Request& request) {
  if (request.weights.empty() || needs_doubles(request)) return 1;
  double total = 0;
  for (double weight : request.weights) total += std::abs(weight);
  return std::ldexp(1.0, kWeightExponent - 1 - std::ilogb(total));
}

double default_divisor(const Request& request) {
  if (request.divisor != 0) return request.divisor;
  if (request.weights.empty()) return static_cast<double>(request.clients - 2 * request.trim);
  if (request.trim > 0) return 0;
  return std::accumulate(request.weights.begin(), request.weights.end(), 0.0);
}

int64_t bounds_size_of(const Request& request) {
  const bool weighted = !request.weights.empty(), exact = needs_doubles(request);
  return request.dtype == Dtype::float64 ? bounds_size<Float64>(request.clients, request.trim, weighted, false)
                                         : bounds_size<Float32>(request.clients, request.trim, weighted, exact);
}

// Offsets into the one block of device memory a reduction takes besides inputs and outputs. What is before `tally` is
// made on the host and copied at once.
struct Room {
  int64_t pointers, outputs, starts, sizes, weights, tally, marks, bounds, end;
  int64_t places = 0;

  explicit Room(const Request& request) {
    const auto arrays = static_cast<int64_t>(request.segments.size());
    for (const Segment& segment : request.segments) places += (segment.size + kStrip - 1) / kStrip * kStrip;
    pointers = 0;
    outputs = pointers + arrays * request.clients * 8;
    starts = outputs + arrays * 8;
    sizes = starts + arrays * 8;
    weights = sizes + arrays * 8;
    tally = aligned(weights + static_cast<int64_t>(request.weights.size()) * 8);
    marks = tally + aligned(16 + request.clients);
    bounds = marks + aligned(places / 8);
    end = bounds + 2 * aligned(bounds_size_of(request) * std::min(places, kBoundsPlaces));
  }
};

}  // namespace

int64_t workspace_size(const Request& request) { return Room(request).end; }

struct Reduction::State {
  Request request;
  cudaStream_t stream;
  Room room;
  unsigned char* memory;
  std::vector<unsigned char> head;

  State(const Request& from, cudaStream_t on, void* workspace)
      : request(from),
        stream(on),
        room(request),
        memory(static_cast<unsigned char*>(workspace)),
        head(static_cast<size_t>(room.tally)) {}
  ~State() { cudaStreamSynchronize(stream); }  // the head must outlive its copy

  void put(int64_t offset, const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(head.data() + offset, from, bytes);
  }

  void write_head() {
    int64_t array = 0, start = 0;
    for (const Segment& segment : request.segments) {
      put(room.pointers + array * request.clients * 8, segment.pointers, static_cast<size_t>(request.clients) * 8);
      put(room.outputs + array * 8, &segment.out, 8);
      put(room.starts + array * 8, &start, 8);
      put(room.sizes + array * 8, &segment.size, 8);
      start += (segment.size + kStrip - 1) / kStrip * kStrip;
      ++array;
    }
    const double unit = weight_unit(request);
    const bool doubles = needs_doubles(request);
    for (size_t client = 0; client < request.weights.size(); ++client) {
      const double weight = request.weights[client] * unit;
      const float pair[2] = {static_cast<float>(weight),
                             static_cast<float>(weight - static_cast<double>(static_cast<float>(weight)))};
      put(room.weights + static_cast<int64_t>(client) * 8, doubles ? static_cast<const void*>(&weight) : pair, 8);
    }
  }

  template <class T>
  T* at(int64_t offset) const {
    return reinterpret_cast<T*>(memory + offset);
  }

  Job job() const {
    const int64_t bound = aligned(bounds_size_of(request) * std::min(room.places, kBoundsPlaces));
    Job job = {};
    job.pointers = at<unsigned long long>(room.pointers);
    job.outputs = at<unsigned long long>(room.outputs);
    job.starts = at<long long>(room.starts);
    job.sizes = at<long long>(room.sizes);
    job.weights = request.weights.empty() ? nullptr : at<void>(room.weights);
    job.unusual = at<uint32_t>(room.marks);
    job.low = bound ? at<void>(room.bounds) : nullptr;
    job.high = bound ? at<void>(room.bounds + bound) : nullptr;
    auto* counts = at<unsigned long long>(room.tally);
    job.tally = {counts, counts + 1, at<uint8_t>(room.tally + 16)};
    job.end = room.places;
    job.divisor = default_divisor(request) * weight_unit(request);
    job.reciprocal = 1 / job.divisor;
    job.shrink = std::ldexp(1.0, -2 - std::ilogb(static_cast<double>(request.clients)));
    if (!needs_doubles(request)) job.shrink = std::ldexp(job.shrink, -kWeightExponent);
    job.grow = 1 / job.shrink;
    job.arrays = static_cast<int32_t>(request.segments.size());
    job.clients = static_cast<int32_t>(request.clients);
    job.trim = static_cast<int32_t>(request.trim);
    job.wide_output = request.wide_output;
    return job;
  }

  void enqueue() {
    write_head();
    if (!head.empty())
      check(cudaMemcpyAsync(memory, head.data(), head.size(), cudaMemcpyHostToDevice, stream), "copying to the device");
    check(cudaMemsetAsync(memory + room.tally, 0, static_cast<size_t>(room.bounds - room.tally), stream),
          "clearing marks");
    if (room.places == 0) return;
    constexpr decltype(&launch_float32) launchers[] = {launch_float32, launch_float64, launch_float16, launch_bfloat16};
    launchers[static_cast<int>(request.dtype)](job(), needs_doubles(request), stream);
  }
};

Reduction::Reduction(const Request& request, cudaStream_t stream, void* workspace)
    : state_(new State(request, stream, workspace)) {
  state_->enqueue();
}

Reduction::~Reduction() = default;

Findings Reduction::finish() {
  std::vector<unsigned char> tally(static_cast<size_t>(16 + state_->request.clients));
  check(cudaMemcpyAsync(tally.data(), state_->memory + state_->room.tally, tally.size(), cudaMemcpyDeviceToHost,
                        state_->stream),
        "copying from the device");
  check(cudaStreamSynchronize(state_->stream), "running the kernels");
  Findings findings;
  std::memcpy(&findings.not_finite, tally.data(), 8);
  std::memcpy(&findings.weightless, tally.data() + 8, 8);
  findings.guilty.assign(tally.begin() + 16, tally.end());
  return findings;
}

}  // namespace cuda
}  // namespace fedincentive

// Runs CUDA sources on the CPU, for tests. Blocks run one after another; the threads of a block that uses shared memory
// are fibers, switched only at barriers and shuffles, in an order chosen by FEDINCENTIVE_SHIM_SEED. Shared and device
// memory are separate allocations of the exact size, filled with rubbish, so that AddressSanitizer sees overruns and a
// missing barrier or copy gives wrong results. Streams are lazy: work runs when somebody waits for it, not before. Every
// launch, copy, allocation and new context is a line in the file FEDINCENTIVE_SHIM_CALLS names.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100
};
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2 };
enum cudaDeviceAttr { cudaDevAttrMemoryClockRate = 36, cudaDevAttrGlobalMemoryBusWidth = 37 };
enum { cudaStreamNonBlocking = 1 };
struct float2 {
  float x, y;
};
struct ShimStream;
using cudaStream_t = ShimStream*;
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes;
  cudaStream_t stream;
};
struct cudaDeviceProp {
  char name[256];
  size_t totalGlobalMem;
  int major, minor;
};

namespace shim {
void enqueue(cudaStream_t stream, std::function<void()> work);
void run_grid(const cudaLaunchConfig_t& config, const std::function<void()>& thread);
void block_barrier();
void note(const char* what, long long amount);
void note_load(const void* from);  // (thread, address) to the file FEDINCENTIVE_SHIM_LOADS names
void exchange_lanes(void* value, size_t bytes, unsigned partner);  // the partner's value replaces the own one
}  // namespace shim

template <class... Parameters, class... Arguments>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(Parameters...),
                               Arguments&&... arguments) {
  const cudaLaunchConfig_t copy = *config;
  if (copy.gridDim.x == 0 || copy.blockDim.x > 1024 || copy.dynamicSmemBytes > 48 * 1024) return cudaErrorInvalidValue;
  shim::note("launch", static_cast<long long>(copy.gridDim.x) * copy.blockDim.x);
  shim::enqueue(copy.stream, [copy, kernel, arguments...]() { shim::run_grid(copy, [&] { kernel(arguments...); }); });
  return cudaSuccess;
}

cudaError_t cudaGetLastError();
const char* cudaGetErrorString(cudaError_t status);
const char* cudaGetErrorName(cudaError_t status);
cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaGetDevice(int* device);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaDriverGetVersion(int* version);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

inline void __syncthreads() { shim::block_barrier(); }

template <class T>
T __shfl_xor_sync(unsigned, T value, int distance) {
  static_assert(sizeof(T) <= 8, "");
  shim::exchange_lanes(&value, sizeof(T), (threadIdx.x % 32) ^ static_cast<unsigned>(distance));
  return value;
}

template <class T>
T __ldg(const T* from) {
  shim::note_load(from);
  return *from;
}
inline int __ffs(int bits) { return __builtin_ffs(bits); }
inline uint32_t atomicOr(uint32_t* at, uint32_t bits) {
  const uint32_t before = *at;
  *at |= bits;
  return before;
}
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
  const unsigned long long before = *at;
  *at += value;
  return before;
}

template <class To, class From>
To shim_bits(From from) {
  To to;
  static_assert(sizeof to == sizeof from, "");
  std::memcpy(&to, &from, sizeof to);
  return to;
}
inline uint32_t __float_as_uint(float value) { return shim_bits<uint32_t>(value); }
inline float __uint_as_float(uint32_t bits) { return shim_bits<float>(bits); }
inline long long __double_as_longlong(double value) { return shim_bits<long long>(value); }
inline double __longlong_as_double(long long bits) { return shim_bits<double>(bits); }

// As the hardware's: a NaN is dropped, -0 is below +0.
inline float shim_minimum(float a, float b) {
  if (a != a || b != b) return a != a ? b : a;
  return a < b || (a == b && std::signbit(a)) ? a : b;
}
inline float shim_maximum(float a, float b) {
  if (a != a || b != b) return a != a ? b : a;
  return a < b || (a == b && std::signbit(a)) ? b : a;
}
#define fminf shim_minimum
#define fmaxf shim_maximum

// What all kernels share: the element types, the job, and how a coordinate is read, ordered and finished.
// Every kernel is plain C++ plus the CUDA built-ins, so the tests run the same source on the CPU.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "../core/half.hpp"
#include "../core/types.hpp"

namespace fedincentive {
namespace cuda {

// The block's dynamic shared memory, in bytes given at launch.
#ifdef __CUDACC__
__device__ __forceinline__ unsigned char* shared_memory() {
  extern __shared__ __align__(16) unsigned char fedincentive_shared[];
  return fedincentive_shared;
}
#else
unsigned char* shared_memory();  // the tests' shim has its own
#endif

// Item is what lies in memory, Lane what is compared, Key an unsigned integer ordered like Lane.
struct Float32 {
  using Item = float;
  using Lane = float;
  using Key = uint32_t;
  static __device__ __forceinline__ Lane widen(Item item) { return item; }
  static __device__ __forceinline__ Item narrow(double value) { return static_cast<float>(value); }
};

struct Float64 {
  using Item = double;
  using Lane = double;
  using Key = uint64_t;
  static __device__ __forceinline__ Lane widen(Item item) { return item; }
  static __device__ __forceinline__ Item narrow(double value) { return value; }
};

struct Float16 {
  using Item = uint16_t;
  using Lane = float;
  using Key = uint32_t;
  static __device__ __forceinline__ Lane widen(Item item) {
#ifdef __CUDA_ARCH__
    float value;  // exact, one instruction instead of ten
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(item));
    return value;
#else
    return widen_float16(item);
#endif
  }
  static __device__ __forceinline__ Item narrow(double value) { return narrow_float16(value); }
};

struct BFloat16 {
  using Item = uint16_t;
  using Lane = float;
  using Key = uint32_t;
  static __device__ __forceinline__ Lane widen(Item item) { return widen_bfloat16(item); }
  static __device__ __forceinline__ Item narrow(double value) { return narrow_bfloat16(value); }
};

// Arrays of one launch lie one after the other in a row of places, each array from a multiple of this on: a block's
// places belong to one array.
constexpr int64_t kStrip = 128;

// What was unusual, in device memory: see Findings.
struct Tally {
  unsigned long long* not_finite;
  unsigned long long* weightless;
  uint8_t* guilty;  // one per client
};

// One reduction of all arrays of a request; a kernel parameter. All pointers are to device memory.
struct Job {
  const unsigned long long* pointers;  // [array * clients + client]: the address of the client's first value
  const unsigned long long* outputs;   // [array]: where its results go
  const long long* starts;             // [array]: its first place
  const long long* sizes;              // [array]
  const void* weights;                 // float2 or double, see sums.cuh; null: all 1
  uint32_t* unusual;                   // a bit per place whose result is not finite
  void* low;                           // the smallest and largest kept value per place from `begin` on, where they are
  void* high;                          // found by one kernel and used by another
  Tally tally;
  int64_t begin, end;  // the places of this launch
  double divisor;      // 0: the total weight of the kept clients
  double reciprocal;   // 1 / divisor
  double shrink;       // a power of two by which no sum overflows
  double grow;         // 1 / shrink
  int32_t arrays;
  int32_t clients;
  int32_t trim;
  bool wide_output;  // write float64 whatever the inputs are
};

// A coordinate of one array.
struct Place {
  int64_t index;
  int64_t coordinate;
  const unsigned long long* clients;
  unsigned long long out;
  bool inside;  // else it is behind the array's end
};

// The place `offset` behind the block's first one; the search for its array is the same in all threads of a block.
__device__ __forceinline__ Place place_at(const Job& job, int64_t first, int64_t offset) {
  int32_t low = 0, high = job.arrays - 1;
  while (low < high) {
    const int32_t middle = (low + high + 1) / 2;
    if (__ldg(job.starts + middle) <= first)
      low = middle;
    else
      high = middle - 1;
  }
  Place place;
  place.index = first + offset;
  place.coordinate = place.index - __ldg(job.starts + low);
  place.clients = job.pointers + static_cast<int64_t>(low) * job.clients;
  place.out = __ldg(job.outputs + low);
  place.inside = place.coordinate < __ldg(job.sizes + low);
  return place;
}

// The block's number, for what is rather computed again than kept in registers all the while.
__device__ __forceinline__ unsigned block_again() {
  unsigned block = blockIdx.x;
#ifdef __CUDA_ARCH__
  asm volatile("" : "+r"(block));
#endif
  return block;
}

__device__ __forceinline__ Place place_of_thread(const Job& job) {
  return place_at(job, job.begin + static_cast<int64_t>(blockIdx.x) * blockDim.x, threadIdx.x);
}

template <class E>
__device__ __forceinline__ typename E::Lane read(const Place& place, int32_t client) {
  const auto* values = reinterpret_cast<const typename E::Item*>(__ldg(place.clients + client));
  return E::widen(__ldg(values + place.coordinate));
}

template <class T>
__device__ __forceinline__ T infinity() {
  return static_cast<T>(HUGE_VAL);
}

// NaN becomes +infinity: it sorts as the largest, and min and max never see it (they would drop it).
template <class T>
__device__ __forceinline__ T ordered(T value) {
  return value == value ? value : infinity<T>();
}

__device__ __forceinline__ void exchange(float& a, float& b) {
  const float low = fminf(a, b);
  b = fmaxf(a, b);
  a = low;
}

// There is no instruction for the minimum of doubles that keeps both values; one comparison serves both selections.
__device__ __forceinline__ void exchange(double& a, double& b) {
  const bool swap = b < a;
  const double low = swap ? b : a;
  b = swap ? a : b;
  a = low;
}

// Keys compare as the values do; -0 comes before +0, which no result depends on.
__device__ __forceinline__ uint32_t key_of(float value) {
  const uint32_t bits = __float_as_uint(value);
  return bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
}
__device__ __forceinline__ uint64_t key_of(double value) {
  const uint64_t bits = static_cast<uint64_t>(__double_as_longlong(value));
  return bits ^ (bits >> 63 ? ~uint64_t{0} : uint64_t{1} << 63);
}
__device__ __forceinline__ float value_of(uint32_t key) {
  return __uint_as_float(key ^ (key >> 31 ? 0x80000000u : 0xffffffffu));
}
__device__ __forceinline__ double value_of(uint64_t key) {
  return __longlong_as_double(static_cast<long long>(key ^ (key >> 63 ? uint64_t{1} << 63 : ~uint64_t{0})));
}

__device__ __forceinline__ bool finite(double value) { return value - value == 0; }

template <class E>
__device__ __forceinline__ void write(const Job& job, const Place& place, double value) {
  if (job.wide_output)
    reinterpret_cast<double*>(place.out)[place.coordinate] = value;
  else
    reinterpret_cast<typename E::Item*>(place.out)[place.coordinate] = E::narrow(value);
}

// Writes a mean; an unusual one is marked for examine.cuh.
template <class E>
__device__ __forceinline__ void finish(const Job& job, const Place& place, double mean) {
  if (!finite(mean)) atomicOr(job.unusual + (place.index >> 5), 1u << (place.index & 31));
  write<E>(job, place, mean);
}

// As the CPU kernels divide: multiplying is cheaper and only float64 results would show it.
template <class E>
__device__ __forceinline__ double divided(const Job& job, double sum) {
  return sizeof(typename E::Lane) == 8 ? sum / job.divisor : sum * job.reciprocal;
}
template <class E>
__device__ __forceinline__ double divided(const Job& job, double sum, double kept_weight) {
  if (job.divisor != 0) return divided<E>(job, sum);
  if (kept_weight == 0) atomicAdd(job.tally.weightless, 1ull);
  return sum / kept_weight;
}

// Which clients a stable sort keeps, knowing the smallest and the largest kept value: those strictly between; of those
// equal to the smallest all but the first ones, of those equal to the largest all but the last ones.
template <class T>
struct KeptRule {
  T low, high;
  int32_t trimmed_at_low;  // how many clients equal to `low` are trimmed
  int32_t kept_at_high;    // how many clients equal to `high` are kept
  int32_t seen_low = 0, seen_high = 0;

  __device__ __forceinline__ KeptRule(T low, T high, int32_t trim, int32_t below, int32_t above, int32_t at_high)
      : low(low), high(high), trimmed_at_low(trim - below), kept_at_high(at_high - (trim - above)) {}

  // To be asked once for every client, in order.
  __device__ __forceinline__ bool keeps(T value) {
    const bool is_low = value == low, is_high = value == high;
    const bool above_low = value > low || (is_low && seen_low >= trimmed_at_low);
    const bool below_high = value < high || (is_high && seen_high < kept_at_high);
    seen_low += is_low;
    seen_high += is_high;
    return above_low && below_high;
  }
};

}  // namespace cuda
}  // namespace fedincentive

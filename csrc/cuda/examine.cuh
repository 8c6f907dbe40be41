// Decides the coordinates whose plain result is not finite, by the definition itself: a stable sort with NaN last, the
// ends cut off, the rest averaged. Slow and rare; a thread looks at 32 coordinates' marks.
#pragma once

#include "device.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kExamineThreads = 128;

// Whether client `a` with value x stands before client `b` with value y.
__device__ __forceinline__ bool precedes(double x, int32_t a, double y, int32_t b) {
  const bool x_nan = x != x, y_nan = y != y;
  if (x_nan || y_nan) return x_nan == y_nan ? a < b : y_nan;
  return x < y || (x == y && a < b);
}

// The client that comes next in the stable order after `client` (-1: the first).
template <class E>
__device__ __forceinline__ int32_t successor(const Job& job, int64_t coordinate, int32_t client, double value) {
  int32_t best = -1;
  double best_value = 0;
  for (int32_t other = 0; other < job.clients; ++other) {
    const double candidate = read<E>(job, other, coordinate);
    if (client >= 0 && !precedes(value, client, candidate, other)) continue;
    if (best >= 0 && !precedes(candidate, other, best_value, best)) continue;
    best = other;
    best_value = candidate;
  }
  return best;
}

template <class E>
__device__ __forceinline__ void examine_coordinate(const Job& job, const Tally& tally, int64_t coordinate) {
  double total_weight = 0, sum = 0, scaled = 0, value = 0;
  bool all_finite = true;
  int32_t client = -1;
  for (int32_t rank = 0; rank < job.clients - job.trim; ++rank) {
    client = job.trim > 0 ? successor<E>(job, coordinate, client, value) : rank;
    value = read<E>(job, client, coordinate);
    if (rank < job.trim) continue;
    const double weight = job.weights ? __ldg(job.weights + client) : 1.0;
    if (!finite(value)) {
      all_finite = false;
      tally.guilty[client] = 1;
    }
    total_weight += weight;
    sum += weight * value;
    scaled += weight * (value * job.shrink);
  }
  if (!all_finite) atomicAdd(tally.not_finite, 1ull);
  const double divisor = job.divisor == 0 ? total_weight : job.divisor;
  if (divisor == 0) atomicAdd(tally.weightless, 1ull);
  const bool rescue = all_finite && divisor != 0;  // finite values whose sum overflows
  write<E>(job, coordinate, rescue ? scaled / divisor / job.shrink : sum / divisor);
}

template <class E>
__global__ void __launch_bounds__(kExamineThreads) examine(const Job job, const Tally tally) {
  const int64_t word = coordinate_of_thread();
  if (word * 32 >= job.size) return;
  for (uint32_t marks = job.unusual[word]; marks != 0; marks &= marks - 1)
    examine_coordinate<E>(job, tally, word * 32 + __ffs(static_cast<int>(marks)) - 1);
}

}  // namespace cuda
}  // namespace fedincentive

// Decides the places whose plain result is not finite: who sent what was kept, and what the result is. A thread looks
// at one place, its neighbours at the next ones, so the loads coalesce as in the other kernels. Where values are
// trimmed no sorting is needed: a stable sort puts -infinity first, infinity and NaN last, so their ranks follow from
// counting. One more load of every client and coordinate for a mean, two for a trimmed mean, however many clients are
// bad.
#pragma once

#include "sums.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kExamineThreads = 128;

__device__ __forceinline__ void accuse(const Job& job, int32_t client) {
  if (!job.tally.guilty[client]) job.tally.guilty[client] = 1;
}

// Nothing is trimmed: all finite values whose sum overflows are added up again, in float64 and scaled.
template <class E, class S, bool Weighted>
__device__ __forceinline__ double examined_mean(const Job& job, const Place& place, bool& all_finite) {
  double sum = 0, scaled = 0;
  for (int32_t client = 0; client < job.clients; ++client) {
    const double value = read<E>(place, client);
    double weight = 1;
    if constexpr (Weighted) weight = whole(weight_of<S>(job, client));
    if (!finite(value)) {
      all_finite = false;
      accuse(job, client);
    }
    sum += value * weight;
    scaled += value * job.shrink * weight;
  }
  if (job.divisor == 0) atomicAdd(job.tally.weightless, 1ull);
  const bool sound = all_finite && job.divisor != 0;
  if (sound && finite(sum)) return divided<E>(job, sum);
  return (sound ? scaled : sum) / job.divisor * (sound ? job.grow : 1);
}

// Which of -infinity, infinity and NaN a value is: 0, 1, 2; 3 is none of them.
__device__ __forceinline__ int kind_of(double value) {
  return value != value ? 2 : finite(value) ? 3 : value < 0 ? 0 : 1;
}

template <class E, class S, bool Weighted>
__device__ __forceinline__ double examined_trimmed(const Job& job, const Place& place, bool& all_finite) {
  int32_t infinite = 0, nan = 0;
  for (int32_t client = 0; client < job.clients; ++client) {
    const int kind = kind_of(read<E>(place, client));
    infinite += kind == 1;
    nan += kind == 2;
  }
  int32_t rank[3] = {0, job.clients - nan - infinite, job.clients - nan};  // of the next one of each kind
  bool low = false, high = false, none = false;
  for (int32_t client = 0; client < job.clients; ++client) {
    const int kind = kind_of(read<E>(place, client));
    int32_t mine = 0;
#pragma unroll
    for (int k = 0; k < 3; ++k) {
      if (kind == k) mine = rank[k];
      rank[k] += kind == k;
    }
    if (kind == 3 || mine < job.trim || mine >= job.clients - job.trim) continue;
    all_finite = false;
    accuse(job, client);
    bool weightless = false;  // then infinity times 0 is NaN
    if constexpr (Weighted) weightless = whole(weight_of<S>(job, client)) == 0;
    none |= weightless || kind == 2;
    low |= kind == 0;
    high |= kind == 1;
  }
  const double sum = (low ? -infinity<double>() : 0) + (high ? infinity<double>() : 0);
  return none || (!low && !high) ? infinity<double>() - infinity<double>() : sum;  // nothing found: no weight was kept
}

template <class E, class S, bool Weighted>
__global__ void __launch_bounds__(kExamineThreads) examine(const Job job) {
  const int64_t index = job.begin + static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (!(job.unusual[index >> 5] >> (index & 31) & 1)) return;
  const Place place = place_of_thread(job);
  bool all_finite = true;
  const double mean = job.trim == 0 ? examined_mean<E, S, Weighted>(job, place, all_finite)
                                    : examined_trimmed<E, S, Weighted>(job, place, all_finite);
  if (!all_finite) atomicAdd(job.tally.not_finite, 1ull);
  write<E>(job, place, mean);
}

}  // namespace cuda
}  // namespace fedincentive

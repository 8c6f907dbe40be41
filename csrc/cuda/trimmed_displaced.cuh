// Trimmed mean of any number of clients when few are trimmed: a thread keeps the k <= K smallest and largest values of
// its coordinate in registers, sorted; each client's value displaces one of them or goes to the sum.
#pragma once

#include "sums.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kDisplacedThreads = 128;

// Puts `value` into the ascending list and gives back the one that falls out at the upper end.
template <class T, int K>
__device__ __forceinline__ T displace_up(T (&list)[K], T value) {
#pragma unroll
  for (int i = 0; i < K; ++i) exchange(list[i], value);
  return value;
}
template <class T, int K>
__device__ __forceinline__ T displace_down(T (&list)[K], T value) {
#pragma unroll
  for (int i = 0; i < K; ++i) exchange(value, list[i]);
  return value;
}

template <class E, int K>
__global__ void __launch_bounds__(kDisplacedThreads) trimmed_displaced(const Job job) {
  using Lane = typename E::Lane;
  using S = Sums<E>;
  [[maybe_unused]] constexpr int at_once = sizeof(Lane) == 8 ? 2 : 4;  // clients; with more float64 spills
  const Place place = place_of_thread(job);
  if (!place.inside) return;
  const auto sum_of = [&](typename S::Value scale, double&) {
    // Places beyond k let every value pass; the others begin with placeholders, which fall out first.
    Lane smallest[K], largest[K];
#pragma unroll
    for (int i = 0; i < K; ++i) {
      smallest[i] = i < job.trim ? infinity<Lane>() : -infinity<Lane>();
      largest[i] = -smallest[i];
    }
    typename S::Sum sum;
#pragma unroll at_once
    for (int32_t client = 0; client < job.clients; ++client) {
      Lane value = displace_up(smallest, ordered(read<E>(place, client)));
      if (client < job.trim) continue;  // a placeholder fell out
      value = displace_down(largest, value);
      if (client >= 2 * job.trim) sum.add(value * scale);
    }
    return sum.total();
  };
  finish<E>(job, place, mean_of<E, S, false>(job, sum_of));
}

}  // namespace cuda
}  // namespace fedincentive

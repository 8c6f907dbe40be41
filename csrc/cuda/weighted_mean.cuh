// sum_i w_i x_i / sum_i w_i, clients added in their order.
#pragma once

#include "sums.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kMeanThreads = 128;

template <class E, class S, bool Weighted>
__global__ void __launch_bounds__(kMeanThreads) weighted_mean(const Job job) {
  const Place place = place_of_thread(job);
  if (!place.inside) return;
  typename S::Sum sum;
#pragma unroll 8
  for (int32_t client = 0; client < job.clients; ++client) {
    const auto value = read<E>(place, client);
    if constexpr (Weighted)
      sum.add(value, weight_of<S>(job, client));
    else
      sum.add(value);
  }
  finish<E>(job, place, divided<E>(job, sum.total()));
}

}  // namespace cuda
}  // namespace fedincentive

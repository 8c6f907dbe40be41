// sum_i w_i x_i / sum_i w_i, clients added in their order, in float64.
#pragma once

#include "device.cuh"

namespace fedincentive {
namespace cuda {

constexpr int kMeanThreads = 256;

template <class E, bool Weighted>
__global__ void __launch_bounds__(kMeanThreads) weighted_mean(const Job job) {
  const int64_t coordinate = coordinate_of_thread();
  if (coordinate >= job.size) return;
  double sum = 0;
#pragma unroll 8
  for (int32_t client = 0; client < job.clients; ++client) {
    const double value = read<E>(job, client, coordinate);
    sum += Weighted ? value * __ldg(job.weights + client) : value;
  }
  finish<E>(job, coordinate, divided<E>(job, sum));
}

}  // namespace cuda
}  // namespace fedincentive

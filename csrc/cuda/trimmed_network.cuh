// Trimmed mean, weighted trimmed mean and median of up to N clients: one coordinate per thread, its values in
// registers, sorted by a literal network. Clients are padded to N with +infinity, which stays behind all real values.
#pragma once

#include "device.cuh"
#include "networks.cuh"

namespace fedincentive {
namespace cuda {

// The table of clients as a kernel parameter: constant memory, no load of its own.
template <int N>
struct Clients {
  const void* pointers[N];
};

// A thread's column of the shared copy is 4 N or 8 N bytes: a block's stays within 32 KB.
template <class E, int N>
constexpr int network_threads() {
  return N * sizeof(typename E::Lane) > 256 ? 64 : 128;
}

template <class E, int N, bool Weighted>
constexpr int64_t network_shared() {
  return Weighted ? int64_t{N} * static_cast<int64_t>(sizeof(typename E::Lane)) * network_threads<E, N>() : 0;
}

// The kept values in ascending order, added up in float64.
template <class T, int N>
__device__ __forceinline__ double sum_ranks(const T (&sorted)[N], int32_t begin, int32_t end) {
  double sum = 0;
#pragma unroll
  for (int i = 0; i < N; ++i)
    if (i >= begin && i < end) sum += static_cast<double>(sorted[i]);
  return sum;
}

template <class T, int N>
__device__ __forceinline__ T pick(const T (&sorted)[N], int32_t rank) {
  T found = sorted[0];
#pragma unroll
  for (int i = 1; i < N; ++i)
    if (i == rank) found = sorted[i];
  return found;
}

// Reads the clients again from the thread's own column of shared memory, in their order, because sorting lost it.
template <class T, int N>
__device__ __forceinline__ void sum_weighted(const Job& job, const T (&sorted)[N], const T* column, double& sum,
                                             double& kept_weight) {
  const T low = pick(sorted, job.trim), high = pick(sorted, job.clients - 1 - job.trim);
  int32_t below = 0, above = 0, at_high = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    below += sorted[i] < low;
    above += i < job.clients && sorted[i] > high;
    at_high += i < job.clients && sorted[i] == high;
  }
  KeptRule<T> rule(low, high, job.trim, below, above, at_high);
  for (int32_t client = 0; client < job.clients; ++client) {
    const T value = column[client * static_cast<int32_t>(blockDim.x)];
    if (!rule.keeps(value)) continue;
    const double weight = __ldg(job.weights + client);
    sum += static_cast<double>(value) * weight;
    kept_weight += weight;
  }
}

template <class E, int N, bool Weighted>
__global__ void __launch_bounds__(network_threads<E, N>())
    trimmed_network(const __grid_constant__ Clients<N> clients, const __grid_constant__ Job job) {
  using Lane = typename E::Lane;
  const int64_t coordinate = coordinate_of_thread();
  if (coordinate >= job.size) return;
  Lane values[N];
  Lane* column = reinterpret_cast<Lane*>(shared_memory()) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = infinity<Lane>();
    if (i < job.clients) values[i] = ordered(read<E>(clients.pointers[i], coordinate));
    if (Weighted) column[i * static_cast<int32_t>(blockDim.x)] = values[i];
  }
  sort_network(values);
  if (Weighted) {
    double sum = 0, kept_weight = 0;
    sum_weighted(job, values, column, sum, kept_weight);
    finish<E>(job, coordinate, divided<E>(job, sum, kept_weight));
  } else {
    finish<E>(job, coordinate, divided<E>(job, sum_ranks(values, job.trim, job.clients - job.trim)));
  }
}

}  // namespace cuda
}  // namespace fedincentive

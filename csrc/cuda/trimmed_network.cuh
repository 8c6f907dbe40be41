// Trimmed mean, weighted trimmed mean and median of up to N clients: one coordinate per thread, its values in
// registers, sorted by a literal network. Clients are padded to N with +infinity, which stays behind all real values.
#pragma once

#include "networks.cuh"
#include "sums.cuh"

namespace fedincentive {
namespace cuda {

// A thread's column of the shared copy is 4 N or 8 N bytes: a block's stays within 32 KB.
template <class E, int N>
constexpr int network_threads() {
  return N * sizeof(typename E::Lane) > 256 ? 64 : 128;
}

template <class E, int N, bool Weighted>
constexpr int64_t network_shared() {
  return Weighted ? int64_t{N} * static_cast<int64_t>(sizeof(typename E::Lane)) * network_threads<E, N>() : 0;
}

// Registers of a thread, of 65,536: so that 1536, 1024, 640 and 384 threads are resident. Without a limit ptxas takes
// two more for the address of every client, to load them all at first.
template <class E, int N>
constexpr int network_registers() {
  constexpr int words = N * static_cast<int>(sizeof(typename E::Lane)) / 4;
  return words <= 16 ? 40 : words <= 32 ? 56 : words <= 64 ? 96 : 168;
}
#if defined(__CUDACC__) && CUDART_VERSION >= 12040
#define FEDINCENTIVE_REGISTERS(threads, registers) __maxnreg__(registers)
#else
#define FEDINCENTIVE_REGISTERS(threads, registers) __launch_bounds__(threads)
#endif

// The kept values in ascending order, times scale.
template <class S, class T, int N>
__device__ __forceinline__ double sum_ranks(const T (&sorted)[N], int32_t begin, int32_t end, T scale) {
  typename S::Sum sum;
#pragma unroll
  for (int i = 0; i < N; ++i) sum.add(i >= begin && i < end ? sorted[i] * scale : T{0});
  return sum.total();
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
template <class E, class T, int N>
__device__ __forceinline__ double weighted_ranks(const Job& job, const T (&sorted)[N], const T* column) {
  using S = Sums<E>;
  const T low = pick(sorted, job.trim), high = pick(sorted, job.clients - 1 - job.trim);
  int32_t below = 0, above = 0, at_high = 0;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    below += sorted[i] < low;
    above += i < job.clients && sorted[i] > high;
    at_high += i < job.clients && sorted[i] == high;
  }
  return mean_of<E, S, true>(job, [&](T scale, double& kept_weight) {
    KeptRule<T> rule(low, high, job.trim, below, above, at_high);
    typename S::Sum sum, kept;
    for (int32_t client = 0; client < job.clients; ++client) {
      const T value = column[client * static_cast<int32_t>(blockDim.x)];
      if (!rule.keeps(value)) continue;
      const auto weight = weight_of<S>(job, client);
      sum.add(value * scale, weight);
      kept.add_weight(weight);
    }
    kept_weight = kept.total();
    return sum.total();
  });
}

template <class E, int N, bool Weighted>
__global__ void FEDINCENTIVE_REGISTERS((network_threads<E, N>()), (network_registers<E, N>()))
    trimmed_network(const __grid_constant__ Job job) {
  using Lane = typename E::Lane;
  using S = Sums<E>;
  const Place place = place_of_thread(job);
  if (!place.inside) return;
  Lane values[N];
  Lane* column = reinterpret_cast<Lane*>(shared_memory()) + threadIdx.x;
#pragma unroll
  for (int i = 0; i < N; ++i) {
    values[i] = infinity<Lane>();
    if (i < job.clients) values[i] = ordered(read<E>(place, i));
    if (Weighted) column[i * static_cast<int32_t>(blockDim.x)] = values[i];
  }
  sort_network(values);
  double mean;
  if constexpr (Weighted)
    mean = weighted_ranks<E>(job, values, column);
  else
    mean = mean_of<E, S, false>(
        job, [&](Lane scale, double&) { return sum_ranks<S>(values, job.trim, job.clients - job.trim, scale); });
  finish<E>(job, place, mean);
}

}  // namespace cuda
}  // namespace fedincentive

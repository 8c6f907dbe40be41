// Chooses the kernel for a number of clients and a trim, and launches it.
#pragma once

#include <type_traits>

#include "examine.cuh"
#include "reduce.hpp"
#include "trimmed_displaced.cuh"
#include "trimmed_network.cuh"
#include "trimmed_streamed.cuh"
#include "trimmed_warp.cuh"
#include "weighted_mean.cuh"

namespace fedincentive {
namespace cuda {

// A 64-bit value takes two registers: half as many clients fit.
template <class E>
constexpr int kRegisterShare = sizeof(typename E::Lane) / 4;
template <class E>
constexpr int kNetworkClients = 128 / kRegisterShare<E>;
template <class E>
constexpr int kWarpGroups = 32 / kRegisterShare<E>;

template <class... Parameters, class... Arguments>
void launch(void (*kernel)(Parameters...), int64_t threads, int block, int64_t shared, cudaStream_t stream,
            Arguments&&... arguments) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>((threads + block - 1) / block));
  config.blockDim = dim3(static_cast<unsigned>(block));
  config.dynamicSmemBytes = static_cast<size_t>(shared);
  config.stream = stream;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Arguments&&>(arguments)...), "launching a kernel");
}

template <class E, int N, bool Weighted>
void launch_network_of(const Job& job, const void* const* pointers, cudaStream_t stream) {
  Clients<N> clients = {};
  for (int32_t i = 0; i < job.clients; ++i) clients.pointers[i] = pointers[i];
  launch(trimmed_network<E, N, Weighted>, job.size, network_threads<E, N>(), network_shared<E, N, Weighted>(), stream,
         clients, job);
}

template <class E, int N = 8>
void launch_network(const Job& job, const void* const* pointers, cudaStream_t stream) {
  if constexpr (N < kNetworkClients<E>) {
    if (job.clients > N) return launch_network<E, 2 * N>(job, pointers, stream);
  }
  if (job.weights)
    launch_network_of<E, N, true>(job, pointers, stream);
  else
    launch_network_of<E, N, false>(job, pointers, stream);
}

// Each coordinate of the job gets its result; those that are not finite are marked and then examined.
// `pointers` is the host's copy of job.pointers.
template <class E>
void launch_reduction(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream) {
  if (job.trim == 0) {
    const auto kernel = job.weights ? weighted_mean<E, true> : weighted_mean<E, false>;
    launch(kernel, job.size, kMeanThreads, 0, stream, job);
  } else if (job.clients <= kNetworkClients<E>) {
    launch_network<E>(job, pointers, stream);
  } else if (!job.weights && job.trim <= 4) {
    launch(trimmed_displaced<E, 4>, job.size, kDisplacedThreads, 0, stream, job);
  } else if (!job.weights && job.trim <= 16) {
    launch(trimmed_displaced<E, 16>, job.size, kDisplacedThreads, 0, stream, job);
  } else {
    const bool fits = job.clients <= kWarp * kWarpGroups<E>;
    Job first = job;
    if (fits && !job.weights) first.low = nullptr;  // the warp sums as well
    if (fits)
      launch(trimmed_warp<E, kWarpGroups<E>>, job.size * kWarp, kWarpThreads, warp_shared<E>(), stream, first);
    else
      launch(kept_bounds<E>, job.size, kStreamedThreads, 0, stream, job);
    if (!fits || job.weights) {
      const auto kernel = job.weights ? kept_mean<E, true> : kept_mean<E, false>;
      launch(kernel, job.size, kStreamedThreads, 0, stream, job);
    }
  }
  launch(examine<E>, (job.size + 31) / 32, kExamineThreads, 0, stream, job, tally);
}

// Whether launch_reduction needs room for bounds (job.low, job.high).
template <class E>
constexpr int64_t bounds_size(int64_t clients, int64_t trim, bool weighted) {
  const bool needs = trim > 0 && clients > kNetworkClients<E> && (weighted || trim > 16);
  return needs ? static_cast<int64_t>(sizeof(typename E::Lane)) : 0;
}

// One translation unit per dtype, so that they compile in parallel.
void launch_float32(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream);
void launch_float64(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream);
void launch_float16(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream);
void launch_bfloat16(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream);

}  // namespace cuda
}  // namespace fedincentive

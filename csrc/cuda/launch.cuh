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

// Places for which there is room for bounds: few launches, little memory.
constexpr int64_t kBoundsPlaces = int64_t{1} << 22;

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

template <class E, int N = 8>
void launch_network(const Job& job, cudaStream_t stream) {
  if constexpr (N < kNetworkClients<E>) {
    if (job.clients > N) return launch_network<E, 2 * N>(job, stream);
  }
  const int64_t places = job.end - job.begin;
  if (job.weights)
    launch(trimmed_network<E, N, true>, places, network_threads<E, N>(), network_shared<E, N, true>(), stream, job);
  else
    launch(trimmed_network<E, N, false>, places, network_threads<E, N>(), 0, stream, job);
}

template <class E, class S>
void launch_mean(const Job& job, cudaStream_t stream) {
  const auto kernel = job.weights ? weighted_mean<E, S, true> : weighted_mean<E, S, false>;
  launch(kernel, job.end - job.begin, kMeanThreads, 0, stream, job);
}

// Bounds by `launch_bounds`, then the mean of what is between: in as many turns as there is room for bounds.
template <class E, class S, class Launch>
void launch_by_bounds(const Job& job, cudaStream_t stream, Launch launch_bounds) {
  const auto kernel = job.weights ? kept_mean<E, S, true> : kept_mean<E, S, false>;
  for (int64_t begin = job.begin; begin < job.end; begin += kBoundsPlaces) {
    Job turn = job;
    turn.begin = begin;
    turn.end = begin + kBoundsPlaces < job.end ? begin + kBoundsPlaces : job.end;
    launch_bounds(turn);
    launch(kernel, turn.end - turn.begin, kStreamedThreads, 0, stream, turn);
  }
}

template <class E, class S>
void launch_streamed(const Job& job, cudaStream_t stream) {
  launch_by_bounds<E, S>(job, stream, [&](const Job& turn) {
    launch(kept_bounds<E>, turn.end - turn.begin, kStreamedThreads, 0, stream, turn);
  });
}

template <class E>
void launch_warps(const Job& job, cudaStream_t stream) {
  const auto launch_one = [&](const Job& turn) {
    launch(trimmed_warp<E, kWarpGroups<E>>, (turn.end - turn.begin) * kWarp, kWarpThreads, warp_shared<E>(), stream,
           turn);
  };
  if (job.weights) return launch_by_bounds<E, Sums<E>>(job, stream, launch_one);
  Job whole = job;
  whole.low = nullptr;  // the warp sums as well
  launch_one(whole);
}

template <class E, class S>
void launch_examine(const Job& job, cudaStream_t stream) {
  const auto kernel = job.weights ? examine<E, S, true> : examine<E, S, false>;
  launch(kernel, job.end - job.begin, kExamineThreads, 0, stream, job);
}

// Each coordinate of the job gets its result; those that are not finite are marked and then examined. `exact` sums
// float32 in float64, with the kernels that need no sorting.
template <class E>
void launch_reduction(const Job& job, bool exact, cudaStream_t stream) {
  if constexpr (sizeof(typename E::Lane) == 4) {
    if (exact) {
      job.trim == 0 ? launch_mean<E, Doubles>(job, stream) : launch_streamed<E, Doubles>(job, stream);
      return launch_examine<E, Doubles>(job, stream);
    }
  }
  if (job.trim == 0)
    launch_mean<E, Sums<E>>(job, stream);
  else if (job.clients <= kNetworkClients<E>)
    launch_network<E>(job, stream);
  else if (!job.weights && job.trim <= 4)
    launch(trimmed_displaced<E, 4>, job.end - job.begin, kDisplacedThreads, 0, stream, job);
  else if (!job.weights && job.trim <= 16)
    launch(trimmed_displaced<E, 16>, job.end - job.begin, kDisplacedThreads, 0, stream, job);
  else if (job.clients <= kWarp * kWarpGroups<E>)
    launch_warps<E>(job, stream);
  else
    launch_streamed<E, Sums<E>>(job, stream);
  launch_examine<E, Sums<E>>(job, stream);
}

// Bytes of a bound (job.low, job.high), 0 where launch_reduction needs none.
template <class E>
constexpr int64_t bounds_size(int64_t clients, int64_t trim, bool weighted, bool exact) {
  const bool needs = trim > 0 && (exact || (clients > kNetworkClients<E> && (weighted || trim > 16)));
  return needs ? static_cast<int64_t>(sizeof(typename E::Lane)) : 0;
}

// One translation unit per dtype, so that they compile in parallel.
void launch_float32(const Job& job, bool exact, cudaStream_t stream);
void launch_float64(const Job& job, bool exact, cudaStream_t stream);
void launch_float16(const Job& job, bool exact, cudaStream_t stream);
void launch_bfloat16(const Job& job, bool exact, cudaStream_t stream);

}  // namespace cuda
}  // namespace fedincentive

#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_float32(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream) {
  launch_reduction<Float32>(job, tally, pointers, stream);
}

}  // namespace cuda
}  // namespace fedincentive

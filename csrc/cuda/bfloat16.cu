#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_bfloat16(const Job& job, const Tally& tally, const void* const* pointers, cudaStream_t stream) {
  launch_reduction<BFloat16>(job, tally, pointers, stream);
}

}  // namespace cuda
}  // namespace fedincentive

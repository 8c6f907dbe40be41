#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_bfloat16(const Job& job, bool exact, cudaStream_t stream) {
  launch_reduction<BFloat16>(job, exact, stream);
}

}  // namespace cuda
}  // namespace fedincentive

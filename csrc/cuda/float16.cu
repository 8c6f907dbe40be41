#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_float16(const Job& job, bool exact, cudaStream_t stream) { launch_reduction<Float16>(job, exact, stream); }

}  // namespace cuda
}  // namespace fedincentive

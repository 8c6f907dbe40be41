#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_float64(const Job& job, bool exact, cudaStream_t stream) { launch_reduction<Float64>(job, exact, stream); }

}  // namespace cuda
}  // namespace fedincentive

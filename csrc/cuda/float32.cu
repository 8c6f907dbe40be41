#include "launch.cuh"

namespace fedincentive {
namespace cuda {

void launch_float32(const Job& job, bool exact, cudaStream_t stream) { launch_reduction<Float32>(job, exact, stream); }

}  // namespace cuda
}  // namespace fedincentive

#define FEDINCENTIVE_ISA avx2
#define FEDINCENTIVE_ISA_NAME "avx2"
#define FEDINCENTIVE_VECTOR_BYTES 32
#include "kernels.inl"

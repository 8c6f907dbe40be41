#define FEDINCENTIVE_ISA avx512
#define FEDINCENTIVE_ISA_NAME "avx512"
#define FEDINCENTIVE_VECTOR_BYTES 64
#include "kernels.inl"

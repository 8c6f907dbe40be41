#define FEDINCENTIVE_ISA scalar
#define FEDINCENTIVE_ISA_NAME "scalar"
#define FEDINCENTIVE_VECTOR_BYTES 16
#include "kernels.inl"

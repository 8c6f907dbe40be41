// Squared Euclidean distances between clients, from differences (never from a Gram matrix, which cancels): of float32
// and halves in float32, some hundred squares at a time, and where that is too narrow in float64, as are those of
// float64.
#pragma once

#include <cstdint>
#include <vector>

#include "../core/types.hpp"

namespace fedincentive {

struct Source {
  const void* pointer;
  const Layout* layout;  // null: contiguous
  Dtype dtype;
};

// One array of every participant (clients, and perhaps a center of another dtype), all of `size` values.
struct Cloud {
  std::vector<Source> sources;
  int64_t size;
};

// out[i * n + j] for all i, j; or, with `to_last`, out[i] = the distance of i to the last participant.
// With scales, of (x_i - x_around) * scales[i] instead of x_i.
std::vector<double> squared_distances(const std::vector<Cloud>& clouds, bool to_last, int64_t around,
                                      const std::vector<double>& scales, int64_t threads, const Kernels& kernels);

}  // namespace fedincentive

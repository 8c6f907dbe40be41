// Weighted mean, trimmed mean and median of n clients' updates, coordinate by coordinate.
#pragma once

#include <cstdint>
#include <vector>

#include "../core/types.hpp"

namespace fedincentive {

struct Request {
  Dtype dtype = Dtype::float32;
  bool wide_output = false;
  int64_t clients = 0;
  int64_t trim = 0;
  double share = 0;  // of the weight to trim per side, instead of a count; weights add up to 1 then
  std::vector<Segment> segments;
  std::vector<double> weights;  // empty: all 1
  double divisor = 0;           // 0: the total weight of the kept clients
  int64_t threads = 1;
  bool stop_early = false;  // once something unusual was found the rest is left undone, and it is said whose it was
};

// What was unusual: coordinates that keep a non-finite value, the clients it came from where it is asked for, and
// coordinates whose kept clients have no weight.
struct Findings {
  int64_t not_finite = 0;
  int64_t weightless = 0;
  std::vector<int64_t> clients;
  bool stopped = false;  // before all coordinates were looked at
};

Findings reduce(const Request& request, const Kernels& kernels);

}  // namespace fedincentive

// A plan is a straight-line program over wires (rows of a tile) that separates the k smallest and the k largest of n
// values from the rest, for every coordinate alike. It depends on (n, k) only, so every split of the coordinates over
// threads or instruction sets adds the kept values in the same order.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "types.hpp"

namespace fedincentive {

struct Plan {
  int64_t n = 0, k = 0;
  int64_t wires = 0;
  int64_t comparators = 0;  // those inside load steps included
  std::vector<Step> steps;
  std::vector<Pair> pairs;
  std::vector<uint32_t> wires_of;         // of displace and keep steps
  std::vector<uint32_t> lowest, highest;  // where the trimmed values end up (for proofs)

  PlanView view() const;
};

// Builds (or finds in a small cache) the plan for n values and k trimmed per side, 1 <= k and 2k < n.
std::shared_ptr<const Plan> plan_for(int64_t n, int64_t k);

}  // namespace fedincentive

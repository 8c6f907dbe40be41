// Optimal sorting networks for up to 8 wires, used inside registers when clients are loaded.
#pragma once

#include <cstdint>

namespace fedincentive {

inline constexpr int kMaxBlock = 8;

template <int N>
struct SortingNetwork;

#define FEDINCENTIVE_NETWORK(N, COUNT, ...)                        \
  template <>                                                      \
  struct SortingNetwork<N> {                                       \
    static constexpr int count = COUNT;                            \
    static constexpr uint8_t pairs[COUNT ? COUNT : 1][2] = {__VA_ARGS__}; \
  };

FEDINCENTIVE_NETWORK(1, 0, {0, 0})
FEDINCENTIVE_NETWORK(2, 1, {0, 1})
FEDINCENTIVE_NETWORK(3, 3, {0, 2}, {0, 1}, {1, 2})
FEDINCENTIVE_NETWORK(4, 5, {0, 2}, {1, 3}, {0, 1}, {2, 3}, {1, 2})
FEDINCENTIVE_NETWORK(5, 9, {0, 3}, {1, 4}, {0, 2}, {1, 3}, {0, 1}, {2, 4}, {1, 2}, {3, 4}, {2, 3})
FEDINCENTIVE_NETWORK(6, 12, {0, 5}, {1, 3}, {2, 4}, {1, 2}, {3, 4}, {0, 3}, {2, 5}, {0, 1}, {2, 3}, {4, 5}, {1, 2},
                     {3, 4})
FEDINCENTIVE_NETWORK(7, 16, {0, 6}, {2, 3}, {4, 5}, {0, 2}, {1, 4}, {3, 6}, {0, 1}, {2, 5}, {3, 4}, {1, 2}, {4, 6},
                     {2, 3}, {4, 5}, {1, 2}, {3, 4}, {5, 6})
FEDINCENTIVE_NETWORK(8, 19, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {0, 4}, {1, 5}, {2, 6}, {3, 7}, {0, 1}, {2, 3}, {4, 5},
                     {6, 7}, {2, 4}, {3, 5}, {1, 4}, {3, 6}, {1, 2}, {3, 4}, {5, 6})
#undef FEDINCENTIVE_NETWORK

inline constexpr int kBlockComparators[kMaxBlock + 1] = {0, 0, 1, 3, 5, 9, 12, 16, 19};

}  // namespace fedincentive

// Sorting networks for up to 16 wires, used inside registers when clients are loaded: optimal up to 8; 16 is Green's,
// and 9 to 15 come from it by fixing inputs to infinity.
#pragma once

#include <cstdint>

namespace fedincentive {

inline constexpr int kMaxBlock = 16;

template <int N>
struct SortingNetwork;

#define FEDINCENTIVE_NETWORK(N, COUNT, ...)                               \
  template <>                                                             \
  struct SortingNetwork<N> {                                              \
    static constexpr int count = COUNT;                                   \
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
FEDINCENTIVE_NETWORK(9, 26, {1, 2}, {3, 4}, {5, 6}, {7, 8}, {1, 3}, {2, 4}, {5, 7}, {6, 8}, {1, 5}, {2, 6}, {3, 7},
                     {4, 8}, {0, 8}, {6, 7}, {0, 4}, {0, 6}, {4, 7}, {2, 3}, {4, 6}, {0, 5}, {3, 5}, {0, 2}, {0, 1},
                     {2, 3}, {4, 5}, {1, 2})
FEDINCENTIVE_NETWORK(10, 31, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {2, 4}, {3, 5}, {6, 8}, {7, 9}, {2, 6}, {3, 7},
                     {4, 8}, {5, 9}, {0, 8}, {1, 9}, {0, 3}, {7, 8}, {1, 5}, {1, 7}, {5, 8}, {3, 4}, {5, 7}, {1, 6},
                     {0, 2}, {4, 6}, {1, 3}, {1, 2}, {3, 4}, {5, 6}, {0, 1}, {2, 3})
FEDINCENTIVE_NETWORK(11, 36, {1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {0, 2}, {3, 5}, {4, 6}, {7, 9}, {8, 10}, {3, 7},
                     {4, 8}, {5, 9}, {6, 10}, {0, 8}, {1, 9}, {2, 10}, {0, 5}, {1, 4}, {8, 9}, {2, 6}, {2, 8}, {6, 9},
                     {0, 1}, {4, 5}, {6, 8}, {2, 7}, {1, 3}, {5, 7}, {2, 4}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {1, 2},
                     {3, 4})
FEDINCENTIVE_NETWORK(12, 40, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10},
                     {9, 11}, {4, 8}, {5, 9}, {6, 10}, {7, 11}, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {1, 6}, {2, 5},
                     {9, 10}, {0, 4}, {3, 7}, {3, 9}, {7, 10}, {1, 2}, {5, 6}, {7, 9}, {3, 8}, {2, 4}, {6, 8}, {3, 5},
                     {1, 2}, {3, 4}, {5, 6}, {7, 8}, {2, 3}, {4, 5})
FEDINCENTIVE_NETWORK(13, 46, {1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {1, 3}, {2, 4}, {5, 7}, {6, 8}, {9, 11},
                     {10, 12}, {0, 4}, {5, 9}, {6, 10}, {7, 11}, {8, 12}, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12},
                     {2, 7}, {3, 6}, {0, 9}, {10, 11}, {1, 5}, {4, 8}, {4, 10}, {8, 11}, {2, 3}, {6, 7}, {8, 10},
                     {0, 5}, {4, 9}, {3, 5}, {7, 9}, {0, 2}, {4, 6}, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {3, 4},
                     {5, 6})
FEDINCENTIVE_NETWORK(14, 51, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {2, 4}, {3, 5}, {6, 8}, {7, 9},
                     {10, 12}, {11, 13}, {0, 4}, {1, 5}, {6, 10}, {7, 11}, {8, 12}, {9, 13}, {0, 8}, {1, 9}, {2, 10},
                     {3, 11}, {4, 12}, {5, 13}, {3, 8}, {4, 7}, {1, 10}, {11, 12}, {2, 6}, {5, 9}, {5, 11}, {0, 6},
                     {9, 12}, {0, 2}, {3, 4}, {7, 8}, {9, 11}, {1, 6}, {5, 10}, {4, 6}, {8, 10}, {1, 3}, {5, 7}, {1, 2},
                     {3, 4}, {5, 6}, {7, 8}, {9, 10}, {4, 5}, {6, 7})
FEDINCENTIVE_NETWORK(15, 56, {1, 2}, {3, 4}, {5, 6}, {7, 8}, {9, 10}, {11, 12}, {13, 14}, {0, 2}, {3, 5}, {4, 6},
                     {7, 9}, {8, 10}, {11, 13}, {12, 14}, {0, 4}, {1, 5}, {2, 6}, {7, 11}, {8, 12}, {9, 13}, {10, 14},
                     {0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {4, 9}, {5, 8}, {2, 11}, {12, 13},
                     {3, 7}, {6, 10}, {0, 1}, {0, 3}, {6, 12}, {1, 7}, {10, 13}, {1, 3}, {4, 5}, {8, 9}, {10, 12},
                     {2, 7}, {6, 11}, {5, 7}, {9, 11}, {2, 4}, {6, 8}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {5, 6},
                     {7, 8})
FEDINCENTIVE_NETWORK(16, 60, {0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}, {0, 2}, {1, 3},
                     {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}, {0, 4}, {1, 5}, {2, 6}, {3, 7}, {8, 12},
                     {9, 13}, {10, 14}, {11, 15}, {0, 8}, {1, 9}, {2, 10}, {3, 11}, {4, 12}, {5, 13}, {6, 14}, {7, 15},
                     {5, 10}, {6, 9}, {3, 12}, {13, 14}, {4, 8}, {7, 11}, {1, 2}, {1, 4}, {7, 13}, {2, 8}, {11, 14},
                     {2, 4}, {5, 6}, {9, 10}, {11, 13}, {3, 8}, {7, 12}, {6, 8}, {10, 12}, {3, 5}, {7, 9}, {3, 4},
                     {5, 6}, {7, 8}, {9, 10}, {11, 12}, {6, 7}, {8, 9})
#undef FEDINCENTIVE_NETWORK

inline constexpr int kBlockComparators[kMaxBlock + 1] = {0, 0, 1, 3, 5, 9, 12, 16, 19, 26, 31, 36, 40, 46, 51, 56, 60};

// Calls visit(a, b) for every comparator that sorts a bitonic sequence of any length, as if it were padded to a power
// of two: in front with -inf where it rises first, behind with +inf where it falls first. Comparators with padding
// would never swap and are left out.
template <class Visit>
constexpr void for_bitonic(int n, bool pad_front, Visit&& visit) {
  int power = 1;
  while (power < n) power *= 2;
  const int shift = pad_front ? power - n : 0;
  for (int distance = power / 2; distance > 0; distance /= 2) {
    for (int i = 0; i < power; ++i) {
      const int a = i - shift, b = i + distance - shift;
      if (!(i & distance) && a >= 0 && b < n) visit(a, b);
    }
  }
}

constexpr int bitonic_comparators(int64_t n) {
  int count = 0;
  for_bitonic(static_cast<int>(n), false, [&](int, int) { ++count; });
  return count;
}

// The same as a table, for code that unrolls it.
template <int N, bool PadFront>
struct BitonicNetwork {
  static constexpr int count = bitonic_comparators(N);
  struct Pairs {
    uint8_t at[count ? count : 1][2];
  };
  static constexpr Pairs make() {
    Pairs pairs{};
    int next = 0;
    for_bitonic(N, PadFront, [&](int a, int b) {
      pairs.at[next][0] = static_cast<uint8_t>(a);
      pairs.at[next][1] = static_cast<uint8_t>(b);
      ++next;
    });
    return pairs;
  }
  static constexpr Pairs pairs = make();
};

inline constexpr int kMinDisplaced = 5, kMaxDisplaced = 12;  // lists that fit in 16 registers with what passes by
inline constexpr int kMaxStreamed = 12;                      // see stream.inl

// Whether what is kept is found by a search (cuts.inl) instead of a network: measured to be faster for one or two
// values in the middle of many clients, and wherever there are so many that a network runs through the slower caches.
static inline constexpr bool cut_by_search(int64_t n, int64_t k) {
  return k > kMaxStreamed && (n >= 1024 || (n >= 96 && n - 2 * k <= 2));
}

}  // namespace fedincentive

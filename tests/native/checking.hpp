// What the native tests share: counting checks, and the units to run.
#pragma once

#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include "cpu/dispatch.hpp"

#if defined(WITH_WIDE_UNIT)
namespace fedincentive {
namespace avx512 {
extern const Kernels kernels;  // compiled for AVX2 here: the logic of the 64-byte unit runs on any recent CPU
}
}  // namespace fedincentive
#endif

inline int failures = 0;
inline long checks = 0;

#define CHECK(condition, ...)                       \
  do {                                              \
    ++checks;                                       \
    if (!(condition)) {                             \
      if (++failures < 20) {                        \
        std::printf("%s:%d: ", __FILE__, __LINE__); \
        std::printf(__VA_ARGS__);                   \
        std::printf("\n");                          \
      }                                             \
    }                                               \
  } while (0)

inline std::vector<const fedincentive::Kernels*> units() {
  std::vector<const fedincentive::Kernels*> result;
  for (const std::string& name : fedincentive::supported_isas()) result.push_back(&fedincentive::kernels_of(name));
#if defined(WITH_WIDE_UNIT)
  result.push_back(&fedincentive::avx512::kernels);
#endif
  return result;
}

// In files_test.cpp; kernels_test.cpp has the program.
void test_files(std::mt19937_64& random);

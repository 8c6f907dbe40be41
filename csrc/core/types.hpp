// What a reduction is asked for and what it answers. Plain data: no Python, no torch, no templates of the standard
// library, because translation units built for different instruction sets share it.
#pragma once

#include <cstdint>

namespace fedincentive {

enum class Dtype : int { float32 = 0, float64 = 1, float16 = 2, bfloat16 = 3 };

static inline constexpr int64_t item_size(Dtype dtype) {
  return dtype == Dtype::float64 ? 8 : dtype == Dtype::float32 ? 4 : 2;
}

inline constexpr int kMaxDims = 64;

// Where the values of one client's array lie when they are not one after the other. Strides are in bytes.
struct Layout {
  int dims;
  int64_t shape[kMaxDims];
  int64_t strides[kMaxDims];
};

// One array of every client: pointers[i] is client i's first value; layouts[i] is null where its values are contiguous.
struct Segment {
  const void* const* pointers;
  const Layout* const* layouts;  // null when all clients are contiguous
  int64_t size;
  void* out;
};

// One step of a plan (see plan.hpp):
//   load      clients begin.. (count of them) sorted into the wires from `wire` on
//   compare   pairs[begin..], one exchange each
//   displace  wires_of[begin..] hold `count` wires of a sorted list and `count` of another, of which the first keeps
//   the
//             smallest (`wire` 0) or largest (1), in order, and the others are added to the sum
//   keep      wires_of[begin..] are added to the sum
enum class StepKind : uint32_t { load, compare, displace, keep };
struct Step {
  StepKind kind;
  uint32_t begin;
  uint32_t count;
  uint32_t wire;
};
struct Pair {
  uint32_t low, high;  // the smaller value goes to `low`
};
struct PlanView {
  const Step* steps;
  const Pair* pairs;
  const uint32_t* wires_of;
  int64_t step_count;
  int64_t wires;
};

// Everything a tile kernel needs. `examine` decides a coordinate whose plain result is not finite.
struct TileJob {
  Dtype dtype;
  Segment segment;
  PlanView plan;
  int64_t clients;
  int64_t trim;
  const double* weights;  // null: all 1
  double divisor;         // 0: the total weight of the kept clients
  bool wide_output;       // write float64 whatever the inputs are
  unsigned char* scratch;
  double (*examine)(void* context, const TileJob& job, int64_t coordinate);
  void* context;
};

// Bytes of scratch a tile kernel may use for a plan with this many wires.
constexpr int kTileBytes = 512;  // of each client at a time, where values are sorted
constexpr int kSpan = 2048;      // values of a client read at a time where nothing is sorted
constexpr int kGroup = 8;        // clients added up at a time there

int64_t scratch_bytes(int64_t wires);

// The kernels of one instruction set.
struct Kernels {
  const char* name;
  void (*reduce_singles)(const TileJob& job, int64_t begin, int64_t end);  // float32, float16, bfloat16
  void (*reduce_wides)(const TileJob& job, int64_t begin, int64_t end);    // float64
  void (*widen)(Dtype dtype, const void* from, double* to, int64_t count);
  // out[j] = sum over t of (one[t] - others[j * stride + t])^2 for j < count, in one fixed order of additions
  void (*squared_distances)(const double* one, const double* others, int64_t stride, int64_t count, int64_t length,
                            double* out);
  // sum of everything read: how fast memory can be read at all
  bool (*all_finite)(Dtype dtype, const void* from, int64_t count);
};

// Copies `count` values from flat position `begin` of a strided array of items of `item` bytes.
void gather(const void* base, const Layout& layout, int64_t item, int64_t begin, int64_t count, void* to);

}  // namespace fedincentive

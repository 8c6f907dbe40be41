// The data that reductions work on, their plans, and the table of kernels. Plain data: no Python, no torch, no
// templates of the standard library, because translation units built for different instruction sets share it.
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
  int64_t size;                  // values of each client
  void* out;                     // as many results, contiguous
};

// One step of a plan (see plan.hpp). Values that are kept are those that are not trimmed.
//
// load: `count` clients from `begin` on are sorted into the wires from `wire` on.
// compare: `count` pairs from pairs[begin] on are exchanged, one after the other.
// displace: wires_of[begin] and following name `count` wires of a sorted list, then `count` of another. The smallest
// (`wire` is 0) or largest (1) `count` values of both go to the first list, in order; the other values are kept.
// keep: the values of `count` wires, named by wires_of[begin] and following, are kept.
enum class StepKind : uint32_t { load, compare, displace, keep };
struct Step {
  StepKind kind;
  uint32_t begin;
  uint32_t count;
  uint32_t wire;
};
struct Pair {
  uint32_t low, high;  // wires: the smaller value goes to `low`
};
struct PlanView {
  const Step* steps;
  const Pair* pairs;         // of compare steps
  const uint32_t* wires_of;  // of displace and keep steps
  int64_t step_count;
  int64_t wires;                     // how many there are
  const uint32_t *lowest, *highest;  // the wires of the trimmed values in the end, `trim` of each; null: none are
};

// What was unusual: coordinates that keep a non-finite value, those whose kept clients have no weight, and whose the
// values were (guilty[client] is 1; null: nobody asks). After `patience` coordinates, counted in tiles that have such,
// the rest is left undone.
struct Unusual {
  int64_t not_finite, weightless;
  unsigned char* guilty;
  int64_t patience;
  bool stopped;
};

// Everything a tile kernel needs.
struct TileJob {
  Dtype dtype;
  Segment segment;
  PlanView plan;  // empty where nothing is trimmed
  int64_t clients;
  int64_t trim;            // values trimmed on each side
  const double* weights;   // null: all 1
  double divisor;          // 0: the total weight of the kept clients
  double share;            // of the weight, trimmed on each side; then weights add up to 1
  int64_t past_share;      // so many clients have more than the share, whoever they are
  double shrink;           // weights times this, where sums would overflow
  bool wide_output;        // write float64 whatever the inputs are
  unsigned char* scratch;  // scratch_bytes() of them, aligned to 64
  Unusual* unusual;
};

// How much is read at a time.
constexpr int kTileBytes = 512;  // bytes of each client, widened if they are halves, where values are sorted
constexpr int kSpan = 2048;      // values of each client where nothing is sorted
constexpr int kGroup = 8;        // clients that are added up together there

// Bytes of scratch memory that a tile kernel needs for a plan with this many wires, or a search among this many
// clients.
int64_t scratch_bytes(int64_t wires);

// The kernels of one instruction set.
struct Kernels {
  const char* name;
  // the results of coordinates begin to end (excluded) of the job's segment
  void (*reduce_singles)(const TileJob& job, int64_t begin, int64_t end);  // float32, float16, bfloat16
  void (*reduce_wides)(const TileJob& job, int64_t begin, int64_t end);    // float64
  // `count` values to float64, and to float32 where they are no wider
  void (*widen)(Dtype dtype, const void* from, double* to, int64_t count);
  void (*widen_singles)(Dtype dtype, const void* from, float* to, int64_t count);
  // out[i * count + j] = sum over t < length of (ones[i * stride + t] - others[j * stride + t])^2 for i < number and
  // j < count, in one fixed order of additions; length is a multiple of 8
  void (*squared_distances)(const double* ones, int64_t number, const double* others, int64_t count, int64_t stride,
                            int64_t length, double* out);
  // the same in float32; length is a multiple of 16
  void (*squared_distances_singles)(const float* ones, int64_t number, const float* others, int64_t count,
                                    int64_t stride, int64_t length, double* out);
  // whether none of `count` values is NaN or infinite
  bool (*all_finite)(Dtype dtype, const void* from, int64_t count);
};

// Copies `count` values from position `begin` on of a strided array, counted in C order; `item` is a value's bytes.
void gather(const void* base, const Layout& layout, int64_t item, int64_t begin, int64_t count, void* to);

}  // namespace fedincentive

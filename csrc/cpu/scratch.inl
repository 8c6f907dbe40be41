// How scratch memory is divided, and what is left there for each tile. Included by kernels.inl inside its namespace.

// The pieces of scratch memory; scratch_bytes() of reduce.cpp counts them. All are aligned to 64 bytes.
struct Scratch {
  unsigned char* staging;  // rows for what cannot be read in place: kGroup of kSpan values, or kTogether of a tile
  unsigned char* halves;   // kSpan of them, before they are widened
  double* sums;            // kSpan
  double* weights;         // kSpan
  unsigned char *low, *high, *counts;  // rows of a tile: 1, 1, 5
  unsigned char* wires;
  int* wary;  // tiles to come in which NaN is expected, see stream.inl
};

inline Scratch divide(const TileJob& job, int* wary) {
  Scratch scratch;
  scratch.wary = wary;
  scratch.staging = job.scratch;
  scratch.halves = scratch.staging + kGroup * kSpan * 8;
  scratch.sums = reinterpret_cast<double*>(scratch.halves + kSpan * 2);
  scratch.weights = scratch.sums + kSpan;
  scratch.low = reinterpret_cast<unsigned char*>(scratch.weights + kSpan);
  scratch.high = scratch.low + kTileBytes;
  scratch.counts = scratch.high + kTileBytes;
  scratch.wires = scratch.counts + 5 * kTileBytes;
  return scratch;
}

// Leaves the sums of a tile of `count` coordinates from `begin` on (and, where weights are trimmed, their total) in
// scratch memory.
using SumTile = void (*)(const TileJob& job, const Scratch& scratch, int64_t begin, int64_t count);

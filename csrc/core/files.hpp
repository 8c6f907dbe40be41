#pragma once

#include <cstdint>
#include <vector>

namespace fedincentive {

// Bytes of an open file to be read to memory. `direct` is the same file opened with O_DIRECT, or -1: past the system's
// cache, a disk is read with a fraction of the processor's time.
struct Read {
  int file, direct;
  int64_t offset;
  unsigned char* to;
  int64_t size;
};

// How far it came: `size` bytes, less than asked where the file ends (`error` 0) or where reading failed (errno); and
// the CRC-32C of every chunk of them, the last one perhaps shorter (`chunk` 0: none).
struct Received {
  int64_t size = 0;
  int error = 0;
  std::vector<uint32_t> checksums;
};

Received read_checked(const Read& read, int64_t chunk);

// The share of a file that is in the system's cache; 1 where that cannot be told.
double cached_share(int file, int64_t size);

}  // namespace fedincentive

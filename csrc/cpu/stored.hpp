// The rules of reduce.hpp over updates in files: a piece of every client is read, reduced and checked while it is still
// in the processor's cache, so that memory is passed once and only some pieces are held, however many clients.
#pragma once

#include <cstdint>
#include <vector>

#include "../core/types.hpp"
#include "reduce.hpp"

namespace fedincentive {

// One client's values of an entry: in memory, or in a file from `offset` on.
struct StoredSource {
  const unsigned char* memory;
  int file, direct;  // see Read
  bool mapped;       // read where it is in the system's cache
  int64_t offset;
  const uint32_t* checksums;  // of every chunk of the entry; null: none were written
};

struct StoredRequest {
  Request request;  // without segments; a thread may well be waiting for the disk
  std::vector<StoredSource> sources;
  int64_t begin, end;    // coordinates wanted: whole chunks, or up to the end of the entry
  int64_t chunk, piece;  // bytes under one checksum, and of a client for a thread: a whole number of chunks
  unsigned char* out;    // the entry's first result; null: they go to a file, from `out_offset` on
  int out_file;
  int64_t out_offset;
};

enum class Trouble : int { none, unreadable, ended, damaged, unwritable };

struct StoredFindings {
  Findings findings;
  Trouble trouble = Trouble::none;
  int64_t client = 0, detail = 0;  // whose file; errno, or the number of the chunk
};

StoredFindings reduce_stored(const StoredRequest& stored, const Kernels& kernels);

}  // namespace fedincentive

#include "stored.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <set>

#include "../core/files.hpp"
#include "dispatch.hpp"

namespace fedincentive {
namespace {

constexpr int64_t kApart = 320;  // bytes between rows, or all of them would compete for the same lines of the cache

struct Problem {
  Trouble trouble = Trouble::none;
  int64_t client = 0, detail = 0;
};

// Bytes begin..end of an entry to memory, whole and as they were written.
Problem read_source(const StoredRequest& stored, int64_t client, int64_t begin, int64_t end, unsigned char* to) {
  const StoredSource& source = stored.sources[static_cast<size_t>(client)];
  const Read read{source.file, source.direct, source.offset + begin, to, end - begin};
  const Received received = read_checked(read, source.checksums ? stored.chunk : 0);
  if (received.error) return {Trouble::unreadable, client, received.error};
  if (received.size < read.size) return {Trouble::ended, client, 0};
  for (size_t i = 0; i < received.checksums.size(); ++i) {
    const int64_t chunk = begin / stored.chunk + static_cast<int64_t>(i);
    if (received.checksums[i] != source.checksums[chunk]) return {Trouble::damaged, client, chunk};
  }
  return {};
}

Problem write_fully(int file, const unsigned char* from, int64_t size, int64_t offset) {
  for (int64_t done = 0; done < size;) {
    const ssize_t count = pwrite(file, from + done, static_cast<size_t>(size - done), offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return {Trouble::unwritable, 0, count < 0 ? errno : EIO};
    done += count;
  }
  return {};
}

// One worker's memory: a row for every client, and one for the result.
class Desk {
 public:
  Desk(int64_t rows, int64_t piece) : stride_(piece + kApart), memory_(new unsigned char[(rows + 1) * stride_ + 64]) {}
  unsigned char* row(int64_t number) {
    const auto start = (reinterpret_cast<uintptr_t>(memory_.get()) + 63) / 64 * 64;
    return reinterpret_cast<unsigned char*>(start) + number * stride_;
  }

 private:
  int64_t stride_;
  std::unique_ptr<unsigned char[]> memory_;  // left as it is: nothing is read before it is written
};

// Bytes begin..end of the entry, from every client to the result.
Problem reduce_piece(const StoredRequest& stored, const Kernels& kernels, Desk& desk, int64_t begin, int64_t end,
                     Findings* found) {
  const int64_t clients = stored.request.clients;
  std::vector<const void*> pointers;
  for (int64_t client = 0; client < clients; ++client) {
    const StoredSource& source = stored.sources[static_cast<size_t>(client)];
    if (source.memory) {
      pointers.push_back(source.memory + begin);
      continue;
    }
    const Problem problem = read_source(stored, client, begin, end, desk.row(client));
    if (problem.trouble != Trouble::none) return problem;
    pointers.push_back(desk.row(client));
  }
  unsigned char* out = stored.out ? stored.out + begin : desk.row(clients);
  Request request = stored.request;
  request.threads = 1;
  request.segments = {{pointers.data(), nullptr, (end - begin) / item_size(request.dtype), out}};
  *found = reduce(request, kernels);
  return stored.out ? Problem{} : write_fully(stored.out_file, out, end - begin, stored.out_offset + begin);
}

}  // namespace

StoredFindings reduce_stored(const StoredRequest& stored, const Kernels& kernels) {
  const int64_t item = item_size(stored.request.dtype), begin = stored.begin * item, end = stored.end * item;
  const int64_t pieces = (end - begin + stored.piece - 1) / stored.piece;
  std::vector<std::unique_ptr<Desk>> desks(static_cast<size_t>(stored.request.threads));
  StoredFindings answer;
  std::set<int64_t> guilty;
  int64_t troubled = pieces;  // the first piece that failed, whichever thread was faster
  std::mutex mutex;
  run_parallel(pieces, stored.request.threads, [&](int64_t worker, int64_t number) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (number > troubled) return;
    }
    std::unique_ptr<Desk>& desk = desks[static_cast<size_t>(worker)];
    if (!desk) desk = std::make_unique<Desk>(stored.request.clients, stored.piece);
    const int64_t from = begin + number * stored.piece;
    Findings found;
    const Problem problem = reduce_piece(stored, kernels, *desk, from, std::min(end, from + stored.piece), &found);
    const std::lock_guard<std::mutex> lock(mutex);
    if (problem.trouble != Trouble::none && number < troubled) {
      troubled = number;
      answer.trouble = problem.trouble;
      answer.client = problem.client;
      answer.detail = problem.detail;
    }
    answer.findings.not_finite += found.not_finite;
    answer.findings.weightless += found.weightless;
    guilty.insert(found.clients.begin(), found.clients.end());
  });
  answer.findings.clients.assign(guilty.begin(), guilty.end());
  return answer;
}

}  // namespace fedincentive

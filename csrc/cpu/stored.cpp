#include "stored.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>

#include "../core/crc32c.hpp"
#include "../core/files.hpp"
#include "../core/mapped.hpp"
#include "dispatch.hpp"

namespace fedincentive {
namespace {

constexpr int64_t kWorthMapping = 128 << 10;  // bytes: less is copied in the time it takes to map it
constexpr int64_t kApart = 320;  // bytes between rows, or all of them would compete for the same lines of the cache

struct Problem {
  Trouble trouble = Trouble::none;
  int64_t client = 0, detail = 0;
};

// Bytes begin..end of an entry to memory, whole.
Problem read_source(const StoredRequest& stored, int64_t client, int64_t begin, int64_t end, unsigned char* to) {
  const StoredSource& source = stored.sources[static_cast<size_t>(client)];
  const Read read{source.file, source.direct, source.offset + begin, to, end - begin};
  const Received received = read_checked(read, 0);
  if (received.error) return {Trouble::unreadable, client, received.error};
  return received.size < read.size ? Problem{Trouble::ended, client, 0} : Problem{};
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

void add(Findings& all, const Findings& found) {
  all.not_finite += found.not_finite;
  all.weightless += found.weightless;
  all.stopped |= found.stopped;
  all.clients.insert(all.clients.end(), found.clients.begin(), found.clients.end());
}

// Where every client's bytes begin..end of the entry are; some are read to the desk first.
Problem lay_out(const StoredRequest& stored, const MappedFiles& mapped, Desk& desk, int64_t begin, int64_t end,
                std::vector<const unsigned char*>* rows) {
  for (int64_t client = 0; client < stored.request.clients; ++client) {
    const auto number = static_cast<size_t>(client);
    if (stored.sources[number].memory) {
      rows->push_back(stored.sources[number].memory + begin);
    } else if (mapped[number]) {
      rows->push_back(mapped[number] + (begin - stored.begin * item_size(stored.request.dtype)));
    } else {
      const Problem problem = read_source(stored, client, begin, end, desk.row(client));
      if (problem.trouble != Trouble::none) return problem;
      rows->push_back(desk.row(client));
    }
  }
  return {};
}

// Bytes begin..end of the entry, from every client to the result. A chunk is checked after it was used: the kernels
// have their way of reading memory, and then it is in the cache. A result is worth nothing until this returns.
Problem reduce_piece(const StoredRequest& stored, const Kernels& kernels, MappedFiles& mapped, Desk& desk,
                     int64_t begin, int64_t end, Findings* found) {
  std::vector<const unsigned char*> rows;
  const Problem problem = lay_out(stored, mapped, desk, begin, end, &rows);
  if (problem.trouble != Trouble::none) return problem;
  unsigned char* out = stored.out ? stored.out + begin : desk.row(stored.request.clients);
  Request request = stored.request;
  request.threads = 1;
  std::vector<const void*> pointers(rows.size());
  const MappedFiles::Watch watch(mapped);
  for (int64_t at = begin; at < end; at += stored.chunk) {
    const int64_t size = std::min(stored.chunk, end - at);
    for (size_t i = 0; i < rows.size(); ++i) pointers[i] = rows[i] + (at - begin);
    request.segments = {{pointers.data(), nullptr, size / item_size(request.dtype), out + (at - begin)}};
    add(*found, reduce(request, kernels));
    for (size_t i = 0; i < rows.size(); ++i) {
      const uint32_t* checksums = stored.sources[i].checksums;
      if (checksums && crc32c(pointers[i], static_cast<size_t>(size)) != checksums[at / stored.chunk])
        return {Trouble::damaged, static_cast<int64_t>(i), at / stored.chunk};
    }
  }
  return stored.out ? Problem{} : write_fully(stored.out_file, out, end - begin, stored.out_offset + begin);
}

StoredFindings reduce_pieces(const StoredRequest& stored, const Kernels& kernels, MappedFiles& mapped) {
  const int64_t item = item_size(stored.request.dtype), begin = stored.begin * item, end = stored.end * item;
  const int64_t pieces = (end - begin + stored.piece - 1) / stored.piece;
  std::vector<std::unique_ptr<Desk>> desks(static_cast<size_t>(stored.request.threads));
  StoredFindings answer;
  int64_t troubled = pieces;  // the first piece that failed, whichever thread was faster
  std::mutex mutex;
  run_parallel(pieces, stored.request.threads, [&](int64_t worker, int64_t number) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      if (number > troubled) return;
      if (stored.request.stop_early && (answer.findings.not_finite || answer.findings.weightless)) {
        answer.findings.stopped = true;
        return;
      }
    }
    std::unique_ptr<Desk>& desk = desks[static_cast<size_t>(worker)];
    if (!desk) desk = std::make_unique<Desk>(stored.request.clients, stored.piece);
    const int64_t from = begin + number * stored.piece;
    Findings found;
    const Problem problem =
        reduce_piece(stored, kernels, mapped, *desk, from, std::min(end, from + stored.piece), &found);
    const std::lock_guard<std::mutex> lock(mutex);
    if (problem.trouble != Trouble::none && number < troubled) {
      troubled = number;
      answer.trouble = problem.trouble;
      answer.client = problem.client;
      answer.detail = problem.detail;
    }
    add(answer.findings, found);
  });
  std::vector<int64_t>& clients = answer.findings.clients;
  std::sort(clients.begin(), clients.end());
  clients.erase(std::unique(clients.begin(), clients.end()), clients.end());
  return answer;
}

// The parts of clients' files that are read where they are: if that is worth it, and values begin at whole multiples of
// their size there.
std::vector<MappedFiles::Part> parts_of(const StoredRequest& stored) {
  const int64_t item = item_size(stored.request.dtype), size = (stored.end - stored.begin) * item;
  std::vector<MappedFiles::Part> parts;
  for (const StoredSource& source : stored.sources) {
    const bool fits = source.mapped && size >= kWorthMapping && source.offset % item == 0;
    parts.push_back({fits ? source.file : -1, source.offset + stored.begin * item, size});
  }
  return parts;
}

}  // namespace

StoredFindings reduce_stored(const StoredRequest& stored, const Kernels& kernels) {
  {
    MappedFiles mapped(parts_of(stored));
    const StoredFindings answer = reduce_pieces(stored, kernels, mapped);
    if (mapped.whole()) return answer;
  }
  MappedFiles none(std::vector<MappedFiles::Part>(stored.sources.size(), {-1, 0, 0}));
  return reduce_pieces(stored, kernels, none);  // reading tells what is wrong with a file
}

}  // namespace fedincentive

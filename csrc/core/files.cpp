#include "files.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "crc32c.hpp"
#include "process.hpp"

namespace fedincentive {
namespace {

constexpr int64_t kBlock = 4096;     // what O_DIRECT wants offsets, sizes and addresses to be multiples of
constexpr int64_t kPiece = 1 << 20;  // bytes read at a time: they stay in the cache until they are checked
constexpr int64_t kPage = 2 << 20;   // of the large pages a processor has beside those of 4 KB

// Reads until `size` bytes are there or the file ends; returns how many, or -1 with errno.
int64_t read_fully(int file, unsigned char* to, int64_t size, int64_t offset) {
  int64_t done = 0;
  while (done < size) {
    const ssize_t count = pread(file, to + done, static_cast<size_t>(size - done), offset + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += count;
    if (done % kBlock != 0) break;  // the end of the file, or a reader that may not go on from here
  }
  return done;
}

struct Freed {
  void operator()(unsigned char* memory) const { std::free(memory); }
};

// Memory that is one page to the system: a disk is asked for its bytes at once, not for 4 KB of them at a time, which
// was measured to be half as fast. Where there are no such pages it is ordinary memory.
unsigned char* make_page() {
  void* page = std::aligned_alloc(kPage, kPage);
#ifdef MADV_HUGEPAGE
  if (page) madvise(page, kPage, MADV_HUGEPAGE);
#endif
  return static_cast<unsigned char*>(page);
}

// The blocks around the wanted bytes go to a page of this thread first.
int64_t read_direct(int file, unsigned char* to, int64_t size, int64_t offset) {
  thread_local const std::unique_ptr<unsigned char, Freed> aligned(make_page());
  const int64_t begin = offset / kBlock * kBlock, end = (offset + size + kBlock - 1) / kBlock * kBlock;
  if (!aligned || end - begin > kPage) {  // the other way is left
    errno = EINVAL;
    return -1;
  }
  const int64_t count = read_fully(file, aligned.get(), end - begin, begin);
  if (count < 0) return -1;
  const int64_t useful = std::max<int64_t>(0, std::min(size, count - (offset - begin)));
  std::memcpy(to, aligned.get() + (offset - begin), static_cast<size_t>(useful));
  return useful;
}

int64_t read_piece(const Read& read, int64_t begin, int64_t size) {
  unsigned char* to = read.to + begin;
  int64_t done = 0;
  if (read.direct >= 0) done = std::max<int64_t>(0, read_direct(read.direct, to, size, read.offset + begin));
  while (done < size) {  // all of it, or what the other way could not
    const ssize_t count = pread(read.file, to + done, static_cast<size_t>(size - done), read.offset + begin + done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return -1;
    if (count == 0) break;
    done += count;
  }
  return done;
}

}  // namespace

Received read_checked(const Read& read, int64_t chunk) {
  Received received;
  if (chunk > 0) received.checksums.resize(static_cast<size_t>((read.size + chunk - 1) / chunk));
  const int64_t piece = chunk > 0 ? std::max(chunk, kPiece / chunk * chunk) : kPiece;
  for (int64_t begin = 0; begin < read.size; begin += piece) {
    poll();
    const int64_t size = std::min(piece, read.size - begin), count = read_piece(read, begin, size);
    if (count < 0) received.error = errno;
    received.size += std::max<int64_t>(count, 0);
    if (count < size) return received;
    if (chunk == 0) continue;
    crc32c_chunks(read.to + begin, static_cast<size_t>(size), static_cast<size_t>(chunk),
                  received.checksums.data() + begin / chunk);
  }
  return received;
}

double cached_share(int file, int64_t size) {
  constexpr int64_t kLooks = 256;  // spread evenly: asking for every page of large files takes a while
  const int64_t page = sysconf(_SC_PAGESIZE);
  if (size <= 0 || page <= 0) return 1;
  void* mapped = mmap(nullptr, static_cast<size_t>(size), PROT_READ, MAP_SHARED, file, 0);
  if (mapped == MAP_FAILED) return 1;
  const int64_t pages = (size + page - 1) / page, looks = std::min(pages, kLooks);
  int64_t present = 0, failed = 0;
  for (int64_t look = 0; look < looks; ++look) {
    unsigned char state = 0;
    failed += mincore(static_cast<char*>(mapped) + look * pages / looks * page, 1, &state) != 0;
    present += state & 1;
  }
  munmap(mapped, static_cast<size_t>(size));
  return failed ? 1 : static_cast<double>(present) / static_cast<double>(looks);
}

}  // namespace fedincentive

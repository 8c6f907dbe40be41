// Updates in files without Python: read, mapped, cut while they are mapped, and their checksums.
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "checking.hpp"
#include "core/crc32c.hpp"
#include "core/mapped.hpp"
#include "core/sha256.hpp"
#include "cpu/dispatch.hpp"
#include "cpu/reduce.hpp"
#include "cpu/stored.hpp"

using namespace fedincentive;

namespace {

// Files and memory mixed, a last chunk that is shorter, more threads than pieces; then a flipped bit.
void test_stored(std::mt19937_64& random, bool mapped, bool past_cache) {
  const int64_t n = 6, m = 50000, chunk = 1024;
  std::vector<std::vector<float>> values(static_cast<size_t>(n), std::vector<float>(m));
  std::vector<std::vector<uint32_t>> sums(static_cast<size_t>(n), std::vector<uint32_t>((4 * m + chunk - 1) / chunk));
  std::vector<std::FILE*> files;
  std::vector<int> direct;
  StoredRequest stored{};
  std::vector<const void*> pointers;
  for (int64_t i = 0; i < n; ++i) {
    auto& row = values[static_cast<size_t>(i)];
    for (float& value : row) value = static_cast<float>(random() % 1000);
    pointers.push_back(row.data());
    crc32c_chunks(row.data(), 4 * m, chunk, sums[static_cast<size_t>(i)].data());
    files.push_back(std::tmpfile());
    std::fwrite("head", 1, 4, files.back());
    std::fwrite(row.data(), 4, m, files.back());
    std::fflush(files.back());
    const std::string same = "/proc/self/fd/" + std::to_string(fileno(files.back()));
    direct.push_back(past_cache ? open(same.c_str(), O_RDONLY | O_DIRECT) : -1);  // not every file system can
    if (i == 2)
      stored.sources.push_back({reinterpret_cast<const unsigned char*>(row.data()), -1, -1, false, 0, nullptr});
    else
      stored.sources.push_back(
          {nullptr, fileno(files.back()), direct.back(), mapped && i != 3, 4, sums[static_cast<size_t>(i)].data()});
  }
  std::vector<float> expected(m), out(m);
  stored.request.clients = n;
  stored.request.trim = 1;
  Request plain = stored.request;
  plain.segments = {{pointers.data(), nullptr, m, expected.data()}};
  reduce(plain, *units().back());
  stored.end = m;
  stored.chunk = chunk;
  stored.piece = 3 * chunk;
  stored.out = reinterpret_cast<unsigned char*>(out.data());
  stored.request.threads = 9;
  CHECK(reduce_stored(stored, *units().back()).trouble == Trouble::none && out == expected, "the same from files");
  std::FILE* result = std::tmpfile();
  stored.out = nullptr;
  stored.out_file = fileno(result);
  stored.out_offset = 8;
  std::fill(out.begin(), out.end(), 0.0f);
  CHECK(reduce_stored(stored, *units().back()).trouble == Trouble::none, "to a file");
  CHECK(pread(fileno(result), out.data(), 4 * m, 8) == 4 * m && out == expected, "the same in a file");
  const char flipped = 1;
  CHECK(pwrite(fileno(files[4]), &flipped, 1, 4 + 4 * m - 1) == 1, "written");
  const StoredFindings found = reduce_stored(stored, *units().back());
  CHECK(found.trouble == Trouble::damaged && found.client == 4 && found.detail == 195, "damage is found");
  CHECK(ftruncate(fileno(files[1]), 4 * m) == 0, "cut");
  const StoredFindings cut = reduce_stored(stored, *units().back());
  CHECK(cut.trouble == Trouble::ended && cut.client == 1, "a cut is found");
  for (std::FILE* file : files) std::fclose(file);
  for (const int file : direct) close(file);
  std::fclose(result);
}

bool ends_the_process(const std::function<void()>& task) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    std::fclose(stderr);  // a sanitizer would explain it
    task();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return !WIFEXITED(status) || WEXITSTATUS(status) != 0;
}

// Sizes below and above a huge page, offsets within a page; files that are cut while they are mapped, at a page and in
// the middle of one.
void test_mapped(std::mt19937_64& random) {
  const int64_t page = sysconf(_SC_PAGESIZE);
  struct sigaction before, after;
  sigaction(SIGBUS, nullptr, &before);
  for (const int64_t size : {int64_t{1}, 3 * page, 5 * page + 7, int64_t{9} << 20}) {
    for (const int64_t offset : {int64_t{0}, int64_t{104}, page, (int64_t{2} << 20) + 8}) {
      std::vector<unsigned char> bytes(static_cast<size_t>(offset + size));
      for (unsigned char& byte : bytes) byte = static_cast<unsigned char>(1 + random() % 255);
      std::FILE *file = std::tmpfile(), *other = std::tmpfile();
      for (std::FILE* each : {file, other}) {
        std::fwrite(bytes.data(), 1, bytes.size(), each);
        std::fflush(each);
      }
      MappedFiles files(
          {{fileno(file), offset, size}, {-1, 0, 0}, {fileno(other), offset, size}, {fileno(file), offset, size + 1}});
      CHECK(files[0] && !files[1] && files[2] && !files[3], "what there is");
      const MappedFiles::Watch watch(files);
      CHECK(std::memcmp(files[0], bytes.data() + offset, static_cast<size_t>(size)) == 0, "the same bytes");
      CHECK(files.whole(), "nothing is missing");
      const int64_t left = offset + size / 2;
      CHECK(ftruncate(fileno(file), left) == 0, "cut");
      CHECK(!files.whole(), "the file is shorter");
      bool zeros = true;
      for (int64_t i = size / 2; i < size; ++i) zeros = zeros && files[0][i] == 0;
      CHECK(zeros, "what is missing reads as zeros");
      CHECK(std::memcmp(files[0], bytes.data() + offset, static_cast<size_t>(size / 2)) == 0, "the rest is there");
      CHECK(std::memcmp(files[2], bytes.data() + offset, static_cast<size_t>(size)) == 0, "as is the other file");
      CHECK(ftruncate(fileno(file), offset + size) == 0, "grown again");
      CHECK(!files.whole(), "what was missed is not forgotten");
      std::fclose(file);
      std::fclose(other);
    }
  }
  sigaction(SIGBUS, nullptr, &after);
  CHECK(before.sa_handler == after.sa_handler, "the handler is the one before");
  std::FILE* file = std::tmpfile();
  CHECK(ftruncate(fileno(file), 2 * page) == 0, "a file");
  {
    MappedFiles files({{fileno(file), 0, 2 * page}});
    CHECK(files.whole() && pwrite(fileno(file), "x", 1, 7) == 1 && !files.whole(), "a file that was written to");
  }
  {
    MappedFiles files({{fileno(file), 0, 2 * page}});
    CHECK(files[0][7] == 'x' && files.replace(files[0]) && files[0][7] == 0, "what a disk does not give");
    CHECK(!files.whole() && !files.replace(&files), "is not forgotten, and nothing else is touched");
  }
  MappedFiles files({{fileno(file), 0, 2 * page}});
  CHECK(ftruncate(fileno(file), page) == 0, "cut");
  const auto read = [&] { CHECK(*static_cast<const volatile unsigned char*>(files[0] + page) == 0, "zeros"); };
  CHECK(ends_the_process(read), "unwatched, as ever");
  CHECK(!ends_the_process([&] {
    const MappedFiles::Watch watch(files);
    read();
  }),
        "watched, not");
  CHECK(!ends_the_process([&] {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, nullptr);
    const MappedFiles::Watch watch(files);
    read();
  }),
        "nor where signals are blocked");
  std::fclose(file);
}

volatile std::sig_atomic_t heard = 0;

// What is not about the files goes to the handler that was there before.
void test_other_bus_errors() {
  std::FILE* file = std::tmpfile();
  CHECK(std::fwrite("x", 1, 1, file) == 1 && std::fflush(file) == 0, "a file");
  const auto sent = [&] {
    MappedFiles files({{fileno(file), 0, 1}});
    const MappedFiles::Watch watch(files);
    heard = 0;
    raise(SIGBUS);
  };
  const auto handled = [&](void (*plain)(int), void (*full)(int, siginfo_t*, void*)) {
    struct sigaction action = {};
    if (full) {
      action.sa_sigaction = full;
      action.sa_flags = SA_SIGINFO;
    } else {
      action.sa_handler = plain;
    }
    sigaction(SIGBUS, &action, nullptr);
  };
  CHECK(ends_the_process([&] {
          handled(SIG_DFL, nullptr);
          sent();
        }),
        "the system's");
  CHECK(!ends_the_process([&] {
    handled(SIG_IGN, nullptr);
    sent();
  }),
        "none");
  CHECK(!ends_the_process([&] {
    handled([](int) { heard = 1; }, nullptr);
    sent();
    if (heard != 1) _exit(1);
  }),
        "a plain one");
  CHECK(!ends_the_process([&] {
    handled(nullptr, [](int, siginfo_t*, void*) { heard = 2; });
    for (int again = 0; again < 2; ++again) {
      sent();
      if (heard != 2) _exit(1);
    }
  }),
        "one with more to know");
  std::fclose(file);
}

void test_checksums(std::mt19937_64& random) {
  for (size_t size : {0, 1, 8, 300, 16383, 16384, 16385, 40000}) {
    std::unique_ptr<unsigned char[]> bytes(new unsigned char[size]);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
    const uint32_t expected = crc32c_ways().front()(bytes.get(), size);
    for (const Crc32c way : crc32c_ways()) CHECK(way(bytes.get(), size) == expected, "%zu bytes", size);
  }
}

void test_hashes(std::mt19937_64& random) {
  for (size_t size = 0; size < 300; ++size) {
    std::unique_ptr<unsigned char[]> bytes(new unsigned char[size]);
    for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<unsigned char>(random());
    std::vector<std::array<unsigned char, kDigest>> found;
    for (const Compress way : sha256_ways())
      for (const size_t first : {size_t{0}, size / 3, size}) {
        Sha256 hash(way);
        hash.add(bytes.get(), first);
        hash.add(bytes.get() + first, size - first);
        hash.finish(found.emplace_back().data());
      }
    for (const auto& digest : found) CHECK(digest == found.front(), "%zu bytes", size);
  }
}

}  // namespace

void test_files(std::mt19937_64& random) {
  test_mapped(random);  // first, while nothing of ours has handled a signal yet
  test_other_bus_errors();
  test_stored(random, false, false);
  test_stored(random, true, false);
  test_stored(random, false, true);
  test_checksums(random);
  test_hashes(random);
}
